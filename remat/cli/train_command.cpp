#include <torch/version.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/base/log.h"
#include "remat/base/version.h"
#include "remat/cli/commands.h"
#include "remat/cli/train_recorder.h"
#include "remat/cli/train_setup.h"
#include "remat/memory/process.h"
#include "remat/profile/profile_cache.h"
#include "remat/train/run_folder.h"
#include "remat/train/trainer.h"

namespace remat::cli {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  remat train --model config.json --train-file train.jsonl \\\n"
    "      --validation-file valid.jsonl --output-dir out \\\n"
    "      --max-seq-length 4096 --gradient-checkpointing\n"
    "  remat train --config out/run.toml --output-dir out2 --seed 43\n\n"
    "Files are .jsonl (one object a line) or .csv (with a header line).\n"
    "Every flag may stand in the file of --config, without its dashes in\n"
    "front: learning-rate = 5e-5. The command line wins. The resolved run is\n"
    "saved as run.toml beside the model.";

void add_data_flags(Flags& flags, TrainRequest& request) {
  flags.group("Data");
  flags.add("train-file", &request.train_file, "FILE",
            "Labelled texts to learn from");
  flags.add("validation-file", &request.validation_file, "FILE",
            "Labelled texts by which the best\nmodel is kept; without it the "
            "last is");
  flags.add("text-column", &request.text_column, "NAME", "Field of the text");
  flags.add("label-column", &request.label_column, "NAME",
            "Field of the label");
  flags.add("max-seq-length", &request.max_seq_length, "TOKENS",
            "Longer texts are cut\n(default all positions of the model)");
  flags.group("Model");
  flags.add("model", &request.model, "FILE|DIR",
            "config.json of a BigBird, or its folder:\nthe weights start "
            "fresh");
  flags.add("init-from", &request.init_from, "DIR",
            "Folder with the weights to start from");
  flags.add("tokenizer", &request.tokenizer, "FILE",
            "SentencePiece model (default the one in\nthe folder, or one "
            "trained on the texts)");
  flags.add("vocab-size", &request.vocab_size, "N",
            "Pieces of a tokenizer that is trained\n(default vocab_size of "
            "the model)");
  flags.group("Output");
  flags.add("output-dir", &request.output_dir, "DIR",
            "Gets the best model, metrics.jsonl and\nrun.toml");
  flags.add("overwrite-output-dir", &request.overwrite_output_dir, "",
            "Replace the run that is there");
}

void add_training_flags(Flags& flags, TrainRequest& request) {
  train::TrainOptions& options = request.options;
  flags.group("Training");
  flags.add("num-train-epochs", &options.num_train_epochs, "N",
            "Passes over the training texts");
  flags.add("max-steps", &options.max_steps, "N", "Steps, instead of epochs");
  flags.add("per-device-train-batch-size", &options.per_device_train_batch_size,
            "N", "Texts in a batch");
  flags.add("gradient-accumulation-steps", &options.gradient_accumulation_steps,
            "N", "Batches in a step");
  flags.add("learning-rate", &options.learning_rate, "RATE",
            "The highest, after the warm-up");
  flags.add("warmup-ratio", &options.warmup_ratio, "SHARE",
            "Share of the steps in which it rises");
  flags.add("weight-decay", &options.weight_decay, "RATE",
            "AdamW's, of matrices only");
  flags.add("max-grad-norm", &options.max_grad_norm, "NORM",
            "Gradients are clipped to it; 0: not");
  flags.add("adam-beta1", &options.adam_beta1, "B", "AdamW's first beta");
  flags.add("adam-beta2", &options.adam_beta2, "B", "AdamW's second beta");
  flags.add("adam-epsilon", &options.adam_epsilon, "E", "AdamW's epsilon");
  flags.add("seed", &options.seed, "N", "Of weights, order and dropout");
  flags.group("Memory");
  flags.add("memory", &request.memory, "SIZE",
            "What the process may hold at once, such as\n900MiB or 4GiB: a "
            "plan chooses what is\nrecomputed, the same losses to the last "
            "bit.\nExit code 3 if no plan fits");
  flags.add("profile-cache", &request.profile_cache, "DIR",
            "Where what was measured for plans is kept\n(default "
            "~/.cache/remat/profiles); off: nowhere");
  flags.add("gradient-checkpointing", &options.checkpointing.enabled, "",
            "Recompute layers in backward instead of\nkeeping their values: "
            "less memory, the same\nlosses to the last bit");
  flags.add("every-n-layers", &request.every_n_layers, "N",
            "Recompute every N-th layer only: faster,\nmore memory (default "
            "1, every layer)");
  flags.group("Evaluation and progress");
  flags.add("eval-steps", &options.eval_steps, "N",
            "Steps between evaluations\n(default once an epoch)");
  flags.add("per-device-eval-batch-size", &options.per_device_eval_batch_size,
            "N", "Texts in a batch");
  flags.add("logging-steps", &options.logging_steps, "N",
            "Steps between progress lines");
}

void set_profile_cache(TrainRequest& request) {
  if (request.profile_cache.empty()) {
    request.options.profile_cache = ProfileCache::default_directory().string();
  } else if (request.profile_cache != "off") {
    request.profile_cache =
        std::filesystem::absolute(request.profile_cache).string();
    request.options.profile_cache = request.profile_cache;
  }
}

void set_memory(TrainRequest& request) {
  try {
    request.options.memory_bytes = parse_bytes(request.memory);
  } catch (const UsageError&) {
    fail_usage("train", "--memory is ", request.memory,
               "; it must be a size such as 900MiB, 4GiB or 4GB.");
  }
  if (request.options.memory_bytes == 0) {
    fail_usage("train", "--memory is ", request.memory,
               "; it must be more than nothing, such as 900MiB.");
  }
  if (request.every_n_layers.has_value()) {
    request.options.checkpointing.enabled = true;
  }
  if (request.common.allocator != "caching") {
    fail_usage("train",
               "--memory needs --allocator caching, which holds the "
               "limit; it is ",
               request.common.allocator, ".");
  }
}

void check(const Flags& flags, TrainRequest& request) {
  flags.require("train-file", "a .jsonl or .csv file with texts and labels.");
  flags.require("output-dir", "a directory for the model.");
  if (request.model.empty() && request.init_from.empty()) {
    fail_usage("train",
               "--model is missing: a BigBird's config.json, or its "
               "folder. Or start from trained weights with --init-from DIR.");
  }
  auto& checkpointing = request.options.checkpointing;
  checkpointing.every_n_layers = request.every_n_layers.value_or(1);
  if (!request.memory.empty()) {
    set_memory(request);
    set_profile_cache(request);
  } else if (!request.profile_cache.empty()) {
    fail_usage("train", "--profile-cache is ", request.profile_cache,
               "; only --memory measures profiles. Leave it out.");
  }
  train::check(request.options);
  if (request.every_n_layers.has_value() &&
      !flags.is_given("gradient-checkpointing")) {
    say("train", "--every-n-layers turns --gradient-checkpointing on");
    checkpointing.enabled = true;
  }
  train::check_run_folder(request.output_dir, request.overwrite_output_dir);
}

// So that run.toml means the same from any directory.
void make_absolute(TrainRequest& request) {
  for (std::string* path :
       {&request.train_file, &request.validation_file, &request.model,
        &request.init_from, &request.tokenizer, &request.output_dir}) {
    if (!path->empty()) {
      *path = std::filesystem::absolute(*path).lexically_normal().string();
    }
  }
}

void print_result(const TrainRequest& request, const std::string& output_dir,
                  const train::TrainResult& result,
                  const std::optional<MemoryPlan>& plan) {
  const double loss_sum =
      std::accumulate(result.losses.begin(), result.losses.end(), 0.0);
  if (request.common.json) {
    nlohmann::ordered_json json;
    json["steps"] = result.steps;
    json["train_loss"] = loss_sum / static_cast<double>(result.steps);
    json["eval_accuracy"] = nullptr;
    json["eval_macro_f1"] = nullptr;
    json["best_step"] = nullptr;
    if (result.best.has_value()) {
      const auto& metrics = result.best->evaluation.metrics;
      json["eval_accuracy"] = metrics.accuracy;
      json["eval_macro_f1"] = metrics.macro_f1;
      json["best_step"] = result.best->step;
    }
    json["peak_resident_bytes"] = peak_resident_bytes();
    json["memory_bytes"] = nullptr;
    json["predicted_peak_bytes"] = nullptr;
    json["predicted_step_seconds"] = nullptr;
    json["predicted_slowdown"] = nullptr;
    if (plan.has_value()) {
      json["memory_bytes"] = plan->budget_bytes;
      json["predicted_peak_bytes"] = plan->plan.peak_bytes;
      json["predicted_step_seconds"] = plan->step_seconds();
      json["predicted_slowdown"] =
          plan->step_seconds() / plan->unbounded_step_seconds();
    }
    json["median_step_seconds"] = result.median_step_seconds;
    json["interrupted"] = result.interrupted;
    json["output_dir"] = output_dir;
    std::printf("%s\n", json.dump().c_str());
    return;
  }
  std::printf("%s", result.interrupted ? "stopped    " : "done       ");
  if (result.best.has_value()) {
    const auto& metrics = result.best->evaluation.metrics;
    std::printf(
        "best accuracy %.3f (majority class %.3f), macro-F1 %.3f at "
        "step %lld; ",
        metrics.accuracy, metrics.majority_accuracy, metrics.macro_f1,
        static_cast<long long>(result.best->step));
  }
  std::string predicted_seconds, predicted_bytes;
  if (plan.has_value()) {
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.3g", plan->step_seconds());
    predicted_seconds = str(" (predicted ", seconds, ")");
    predicted_bytes = str(" (predicted ", format_bytes(plan->plan.peak_bytes),
                          " of ", format_bytes(plan->budget_bytes), ")");
  }
  std::printf("%lld steps of %.3g s%s, peak memory %s%s; model in %s\n",
              static_cast<long long>(result.steps), result.median_step_seconds,
              predicted_seconds.c_str(),
              format_bytes(peak_resident_bytes()).c_str(),
              predicted_bytes.c_str(), output_dir.c_str());
}

}  // namespace

int train_command(const std::vector<std::string>& arguments) {
  TrainRequest request;
  Flags flags("train",
              "Fine-tunes a BigBird classifier of long texts. Prints its "
              "progress on\nstandard error and the result on standard "
              "output.");
  add_data_flags(flags, request);
  add_training_flags(flags, request);
  add_common_flags(flags, request.common);
  flags.set_examples(kExamples);
  if (!flags.parse(arguments)) {
    return 0;
  }
  apply(request.common, "train");
  check(flags, request);
  const std::string output_dir = request.output_dir;
  TrainJob job = set_up(request);
  make_absolute(request);
  const std::string run_toml =
      str("# remat ", version(), ", libtorch ", TORCH_VERSION,
          "; again: remat train --config run.toml --output-dir NEW\n",
          flags.to_toml({"overwrite-output-dir", "json", "quiet", "verbose"}));
  if (log_level() == LogLevel::kVerbose) {
    say("train", "the resolved run:\n" + run_toml);
  }
  TrainRecorder recorder(request, job, run_toml);
  const train::TrainResult result = train::train(
      *job.model, job.train_set,
      job.validation_set.has_value() ? &*job.validation_set : nullptr,
      job.pad_id, request.options, recorder);
  recorder.finish(result);
  print_result(request, output_dir, result, recorder.plan());
  return result.interrupted ? 130 : 0;
}

}  // namespace remat::cli
