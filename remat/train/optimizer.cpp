#include "remat/train/optimizer.h"

#include <torch/optim/adamw.h>

#include <tuple>

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

}  // namespace remat::train
