// The training loop.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "remat/data/batches.h"
#include "remat/nn/bigbird.h"
#include "remat/train/evaluation.h"
#include "remat/train/memory_planner.h"
#include "remat/train/train_options.h"

namespace remat::train {

struct StepReport {
  int64_t step = 0;  // counts from 1
  int64_t total_steps = 0;
  double epoch = 0;  // passes over the training set so far
  double loss = 0;   // mean cross-entropy over the texts of the step
  double learning_rate = 0;
  double grad_norm = 0;  // before clipping
  double seconds = 0;
  int64_t tokens = 0;  // without padding
};

struct EvaluationReport {
  int64_t step = 0;
  Evaluation evaluation;
  bool best = false;  // more accurate than all before, or as much at less loss
};

// Looks on. Called by the thread that trains, between steps; an exception ends
// the run and passes through.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  // Before step one, with TrainOptions::memory_bytes.
  virtual void on_plan(const BatchPlan&) {}
  virtual void on_step(const StepReport&) {}
  virtual void on_evaluation(const EvaluationReport&) {}
  // Asked after each step and within evaluations.
  virtual bool stop_requested() { return false; }
};

struct TrainResult {
  int64_t steps = 0;
  std::vector<double> losses;  // of every step
  double median_step_seconds = 0;
  bool interrupted = false;  // stop_requested() said so
  std::optional<EvaluationReport> best;
};

// The number of steps that the options mean for that many training texts: an
// epoch's last step may have fewer batches, and its last batch fewer texts.
int64_t count_steps(const TrainOptions& options, int64_t examples);

// Trains the model in place. A step's loss is the mean over all its texts,
// however they are cut into batches: with equal sizes each batch's loss counts
// 1 / gradient_accumulation_steps. Seeds ATen's generator, so that dropout is a
// function of options.seed, and the order of texts of (seed, epoch).
//
// train_set: labelled, not empty; validation_set: may be null, then nothing is
// evaluated. Throws UsageError for bad options, NoPlanError and BudgetError of
// a MemoryPlanner, Error naming step and value where loss or gradient is not
// finite (the weights are then those of the step before).
TrainResult train(nn::BigBirdClassifier& model, const data::Dataset& train_set,
                  const data::Dataset* validation_set, int64_t pad_id,
                  const TrainOptions& options, TrainObserver& observer);

}  // namespace remat::train
