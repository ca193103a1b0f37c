// What a training run does, apart from its data and its model.
#pragma once

#include <cstdint>
#include <optional>

#include "remat/nn/bigbird.h"

namespace remat::train {

// Names and meanings of Hugging Face's TrainingArguments.
struct TrainOptions {
  // Texts in one forward; more is faster a text and takes more memory.
  int64_t per_device_train_batch_size = 8;
  int64_t per_device_eval_batch_size = 8;

  // Batches whose gradients make one step: a larger batch without its memory.
  int64_t gradient_accumulation_steps = 1;

  // The highest learning rate; see LearningRateSchedule.
  double learning_rate = 5e-5;

  // Share of the steps in which the rate rises from 0; in [0, 1].
  double warmup_ratio = 0.0;

  // Decoupled, on matrices alone: biases and layer norms do not decay.
  double weight_decay = 0.0;

  // Gradients are scaled down to this Euclidean norm; 0 leaves them alone.
  double max_grad_norm = 1.0;

  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;

  // Passes over the training set; fractions stop within one. Counts only if
  // max_steps is not given.
  double num_train_epochs = 3.0;
  std::optional<int64_t> max_steps;

  // Fresh weights, order of the texts and dropout are functions of it.
  int64_t seed = 42;

  // Steps between evaluations; default: at the end of each epoch. There is
  // always one at the end.
  std::optional<int64_t> eval_steps;

  // Steps between progress lines where standard error is no terminal.
  int64_t logging_steps = 10;

  // Which layers are recomputed in backward; default none.
  nn::LayerCheckpointing checkpointing;

  // What the process may hold at once, in bytes: a plan chooses what is
  // recomputed, instead of `checkpointing`. Needs install_cpu_allocator().
  std::optional<int64_t> memory_bytes;

  // Keeps the profiles that its plans are made from; empty: they are measured
  // each time.
  std::string profile_cache;
};

// Throws UsageError that names the flag, its value and what would be right.
void check(const TrainOptions& options);

}  // namespace remat::train
