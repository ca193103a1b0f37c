#include "remat/train/train_options.h"

#include <cmath>
#include <string_view>

#include "remat/base/error.h"

namespace remat::train {
namespace {

// Far above anything useful, and far below where products overflow.
constexpr int64_t kLargestCount = 1'000'000'000;

template <class T>
[[noreturn]] void refuse(std::string_view flag, T value,
                         std::string_view rule) {
  fail_usage("train", "--", flag, " is ", value, "; it must be ", rule, ".");
}

void check_count(std::string_view flag, int64_t value,
                 std::string_view remedy = "") {
  if (value < 1 || value > kLargestCount) {
    refuse(flag, value,
           str(value < 1 ? "at least 1" : "at most 1,000,000,000", remedy));
  }
}

// In [low, high), or [low, high] if closed; NaN is in no range.
void check_range(std::string_view flag, double value, double low, double high,
                 bool closed, std::string_view rule) {
  if (!(value >= low && (closed ? value <= high : value < high))) {
    refuse(flag, value, rule);
  }
}

}  // namespace

void check(const TrainOptions& options) {
  if (options.memory_bytes.has_value() && options.checkpointing.enabled) {
    fail_usage("train",
               "--memory chooses which layers are recomputed; leave out "
               "--gradient-checkpointing and --every-n-layers.");
  }
  check_count("per-device-train-batch-size",
              options.per_device_train_batch_size);
  check_count("per-device-eval-batch-size", options.per_device_eval_batch_size);
  check_count("gradient-accumulation-steps",
              options.gradient_accumulation_steps,
              " (1 makes every batch a step)");
  if (!(options.learning_rate > 0 && options.learning_rate <= 10)) {
    refuse("learning-rate", options.learning_rate,
           "above 0 and at most 10 (5e-5 is usual)");
  }
  check_range("warmup-ratio", options.warmup_ratio, 0, 1, true,
              "from 0 to 1: a share of the steps");
  check_range("weight-decay", options.weight_decay, 0, 10, true,
              "from 0 (none) to 10");
  check_range("max-grad-norm", options.max_grad_norm, 0, 1e30, true,
              "0 (no clipping) or a finite number above it");
  check_range("adam-beta1", options.adam_beta1, 0, 1, false,
              "at least 0 and below 1");
  check_range("adam-beta2", options.adam_beta2, 0, 1, false,
              "at least 0 and below 1");
  if (!(options.adam_epsilon > 0 && options.adam_epsilon <= 1)) {
    refuse("adam-epsilon", options.adam_epsilon, "above 0 and at most 1");
  }
  if (!(options.num_train_epochs > 0 && options.num_train_epochs <= 1e6)) {
    refuse("num-train-epochs", options.num_train_epochs,
           "above 0 and at most 1,000,000");
  }
  if (options.max_steps.has_value()) {
    check_count("max-steps", *options.max_steps,
                "; leave it out to count in epochs");
  }
  if (options.seed < 0) {
    refuse("seed", options.seed, "at least 0");
  }
  if (options.eval_steps.has_value()) {
    check_count("eval-steps", *options.eval_steps,
                "; leave it out to evaluate after each epoch");
  }
  check_count("logging-steps", options.logging_steps);
  if (options.checkpointing.every_n_layers < 1) {
    refuse("every-n-layers", options.checkpointing.every_n_layers,
           "at least 1 (1 recomputes every layer, 2 every second one). Leave "
           "out --gradient-checkpointing to recompute none");
  }
}

}  // namespace remat::train
