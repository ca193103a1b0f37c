#include "remat/train/optimizer.h"

#include <ATen/ops/zeros.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <chrono>
#include <tuple>

#include "remat/train/gradients.h"

namespace remat::train {

struct Optimizer::Impl {
  torch::optim::AdamW adamw;
};

bool decays(const at::Tensor& parameter) { return parameter.dim() >= 2; }

Optimizer::Optimizer(const std::vector<at::Tensor>& parameters,
                     const TrainOptions& options) {
  torch::optim::AdamWOptions settings(options.learning_rate);
  settings.betas(std::make_tuple(options.adam_beta1, options.adam_beta2))
      .eps(options.adam_epsilon);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const bool decay : {true, false}) {
    std::vector<at::Tensor> members;
    for (const at::Tensor& parameter : parameters) {
      if (decays(parameter) == decay) {
        members.push_back(parameter);
      }
    }
    if (!members.empty()) {
      settings.weight_decay(decay ? options.weight_decay : 0);
      groups.emplace_back(
          members, std::make_unique<torch::optim::AdamWOptions>(settings));
    }
  }
  impl_ = std::make_unique<Impl>(
      Impl{torch::optim::AdamW(std::move(groups), settings)});
}

Optimizer::~Optimizer() = default;

void Optimizer::step(double learning_rate) {
  for (auto& group : impl_->adamw.param_groups()) {
    static_cast<torch::optim::AdamWOptions&>(group.options()).lr(learning_rate);
  }
  impl_->adamw.step();
}

double measure_update_seconds(const std::vector<at::Tensor>& parameters,
                              const TrainOptions& options) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kMostBytes = int64_t{16} << 20;
  constexpr int kRepetitions = 3;
  int64_t all = 0, largest = 0;
  for (const at::Tensor& parameter : parameters) {
    all += static_cast<int64_t>(parameter.nbytes());
    largest = std::max(largest, static_cast<int64_t>(parameter.nbytes()));
  }
  if (all == 0) {
    return 0;
  }
  const int64_t bytes = std::min(largest, kMostBytes);
  const at::Tensor like = parameters.front();
  const auto rows = std::max<int64_t>(
      bytes / static_cast<int64_t>(like.element_size()) / 64, 1);
  const at::Tensor stand_in =
      at::zeros({rows, 64}, like.options()).set_requires_grad(true);
  stand_in.mutable_grad() = at::zeros({rows, 64}, like.options());
  Optimizer optimizer({stand_in}, options);
  // The first makes the moments.
  optimizer.step(0);
  double best = 0;
  for (int i = 0; i < kRepetitions; ++i) {
    const auto start = Clock::now();
    gradient_norm({stand_in});
    clip_gradients({stand_in}, 2, 1);
    optimizer.step(0);
    const double seconds =
        std::chrono::duration<double>(Clock::now() - start).count();
    best = i == 0 ? seconds : std::min(best, seconds);
  }
  return best * static_cast<double>(all) /
         static_cast<double>(stand_in.nbytes());
}

}  // namespace remat::train
