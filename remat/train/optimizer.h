// AdamW over a model's named parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "remat/train/train_options.h"

namespace remat::train {

// True for matrices (and tensors of more dimensions): what weight decay acts
// on. Biases and layer norms are vectors, as in Hugging Face's Trainer.
bool decays(const at::Tensor& parameter);

// libtorch's AdamW in two groups, with and without decay. Holds the parameters
// and, from the first step on, two tensors of the same size for each.
// Loshchilov, Hutter: Decoupled Weight Decay Regularization (ICLR 2019).
class Optimizer {
 public:
  Optimizer(const std::vector<at::Tensor>& parameters,
            const TrainOptions& options);
  ~Optimizer();

  // One step along the gradients; parameters without one stay.
  void step(double learning_rate);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// How many seconds gradient_norm(), clip_gradients() and a step take for
// parameters like these, without their gradients and moments: measured on a
// stand-in for the largest of them, of up to 16 MiB, and scaled.
double measure_update_seconds(const std::vector<at::Tensor>& parameters,
                              const TrainOptions& options);

}  // namespace remat::train
