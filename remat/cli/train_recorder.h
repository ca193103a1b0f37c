// What `remat train` shows and writes while it trains.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "remat/cli/train_setup.h"
#include "remat/train/model_folder.h"
#include "remat/train/progress.h"
#include "remat/train/run_folder.h"
#include "remat/train/trainer.h"

namespace remat::cli {

// From its construction on, SIGINT and SIGTERM ask for a stop after the step;
// the second one ends the process at once.
class TrainRecorder final : public train::TrainObserver {
 public:
  // Creates the directory with an empty metrics.jsonl. A model that another run
  // left there stays, with its run.toml and metrics.jsonl, until the first of
  // this run is saved; the metrics of this run are in metrics.jsonl.unsaved
  // till then. Throws Error naming what cannot be written.
  TrainRecorder(const TrainRequest& request, const TrainJob& job,
                const std::string& run_toml);

  void on_plan(const train::BatchPlan& plan) override;
  void on_step(const train::StepReport& report) override;
  void on_evaluation(const train::EvaluationReport& report) override;
  bool stop_requested() override;

  // Saves the model of a run that kept none: without a validation set, or
  // interrupted. An interrupted run that has a best model already leaves its
  // last one in the folder "interrupted".
  void finish(const train::TrainResult& result);

  // The first one; empty without --memory.
  const std::optional<MemoryPlan>& plan() const { return plan_; }

 private:
  void replace_other_run();

  const nn::BigBirdClassifier& model_;
  const data::Tokenizer& tokenizer_;
  std::filesystem::path directory_;
  std::string run_toml_;
  std::optional<MemoryPlan> plan_;
  train::Progress progress_;
  train::LineFile metrics_;
  train::ModelFolderWriter writer_;
};

}  // namespace remat::cli
