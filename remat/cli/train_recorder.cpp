#include "remat/cli/train_recorder.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "remat/base/error.h"
#include "remat/base/file.h"
#include "remat/base/log.h"
#include "remat/memory/process.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

volatile std::sig_atomic_t stop_signal = 0;

void on_stop_signal(int signal) {
  stop_signal = signal;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kUnsavedMetrics = "metrics.jsonl.unsaved";

const fs::path& prepare(const fs::path& directory) {
  make_directories(directory);
  // What a killed run left: half a file as large as a model, and the metrics
  // of no model.
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("model.safetensors.new") || name == kUnsavedMetrics) {
      std::error_code ignored;
      fs::remove(entry.path(), ignored);
    }
  }
  return directory;
}

// The metrics of another run's model stay as long as that model does.
fs::path metrics_path(const fs::path& directory) {
  std::error_code ignored;
  return directory / (fs::exists(directory / "model.safetensors", ignored)
                          ? kUnsavedMetrics
                          : kMetrics);
}

}  // namespace

TrainRecorder::TrainRecorder(const TrainRequest& request, const TrainJob& job,
                             const std::string& run_toml)
    : model_(*job.model),
      tokenizer_(*job.tokenizer),
      directory_(prepare(request.output_dir)),
      run_toml_(run_toml),
      progress_(request.options.logging_steps, ::isatty(STDERR_FILENO) == 1),
      metrics_(metrics_path(directory_)),
      writer_(directory_, tokenizer_, [this] { replace_other_run(); }) {
  std::signal(SIGINT, on_stop_signal);
  std::signal(SIGTERM, on_stop_signal);
}

void TrainRecorder::on_plan(const train::BatchPlan& plan) {
  plan_ = plan.memory;
  say("plan", plan.memory.explain());
}

void TrainRecorder::on_step(const train::StepReport& report) {
  Json line;
  line["step"] = report.step;
  line["epoch"] = report.epoch;
  line["loss"] = report.loss;
  line["learning_rate"] = report.learning_rate;
  line["grad_norm"] = report.grad_norm;
  line["seconds_per_step"] = report.seconds;
  line["tokens_per_second"] =
      static_cast<double>(report.tokens) / report.seconds;
  line["resident_bytes"] = resident_bytes();
  line["peak_resident_bytes"] = peak_resident_bytes();
  metrics_.append(line.dump());
  progress_.step(report);
}

void TrainRecorder::on_evaluation(const train::EvaluationReport& report) {
  progress_.end_line();
  const train::Evaluation& evaluation = report.evaluation;
  if (report.best) {
    writer_.save(model_);
  }
  Json line;
  line["step"] = report.step;
  line["eval_loss"] = evaluation.loss;
  line["eval_accuracy"] = evaluation.metrics.accuracy;
  line["eval_macro_f1"] = evaluation.metrics.macro_f1;
  line["eval_seconds"] = evaluation.seconds;
  metrics_.append(line.dump());
  char text[200];
  std::snprintf(
      text, sizeof text,
      "step %lld: accuracy %.4f (majority class %.4f), macro-F1 "
      "%.4f, loss %.4f, %.1f s%s",
      static_cast<long long>(report.step), evaluation.metrics.accuracy,
      evaluation.metrics.majority_accuracy, evaluation.metrics.macro_f1,
      evaluation.loss, evaluation.seconds, report.best ? "; saved" : "");
  say("eval", text);
}

bool TrainRecorder::stop_requested() { return stop_signal != 0; }

void TrainRecorder::replace_other_run() {
  std::error_code ignored;
  fs::remove_all(directory_ / "interrupted", ignored);
  write_file(directory_ / "run.toml", run_toml_);
  metrics_.rename(directory_ / kMetrics);
}

void TrainRecorder::finish(const train::TrainResult& result) {
  progress_.end_line();
  if (!writer_.has_saved()) {
    writer_.save(model_);
  } else if (result.interrupted) {
    const fs::path folder = directory_ / "interrupted";
    train::ModelFolderWriter(folder, tokenizer_, [&] {
      write_file(folder / "run.toml", run_toml_);
    }).save(model_);
  }
  if (result.interrupted) {
    const bool has_best = result.best.has_value();
    say("train",
        str("interrupted after step ", result.steps, "; the model is in ",
            (has_best ? directory_ / "interrupted" : directory_).string(),
            has_best ? str(", the best so far (step ", result.best->step,
                           ") in ", directory_.string())
                     : ""));
  }
}

}  // namespace remat::cli
