#include "remat/nn/layers.h"

#include <ATen/ATen.h>

#include "remat/base/error.h"

namespace remat::nn {
namespace {

at::Tensor parameter(const at::Tensor& values) {
  return values.requires_grad_(true);
}

at::Tensor normal_weight(const WeightInit& init, int64_t rows,
                         int64_t columns) {
  return at::empty({rows, columns}, at::kFloat).normal_(0.0, init.range);
}

}  // namespace

Linear::Linear(const WeightInit& init, int64_t inputs, int64_t outputs,
               bool with_bias)
    : weight(parameter(normal_weight(init, outputs, inputs))) {
  if (with_bias) {
    bias = parameter(at::zeros({outputs}, at::kFloat));
  }
}

at::Tensor Linear::operator()(const at::Tensor& x) const {
  return at::linear(x, weight, bias);
}

void Linear::add_to(NamedParameters& parameters,
                    const std::string& name) const {
  parameters.emplace_back(name + ".weight", weight);
  if (bias.defined()) {
    parameters.emplace_back(name + ".bias", bias);
  }
}

LayerNorm::LayerNorm(int64_t size, double eps)
    : weight(parameter(at::ones({size}, at::kFloat))),
      bias(parameter(at::zeros({size}, at::kFloat))),
      eps(eps) {}

at::Tensor LayerNorm::operator()(const at::Tensor& x) const {
  return at::layer_norm(x, weight.sizes(), weight, bias, eps);
}

void LayerNorm::add_to(NamedParameters& parameters,
                       const std::string& name) const {
  parameters.emplace_back(name + ".weight", weight);
  parameters.emplace_back(name + ".bias", bias);
}

at::Tensor make_embedding(const WeightInit& init, int64_t rows, int64_t size,
                          int64_t padding_row) {
  at::Tensor weight = normal_weight(init, rows, size);
  if (padding_row >= 0) {
    weight.select(0, padding_row).zero_();
  }
  return parameter(weight);
}

at::Tensor activate(std::string_view name, const at::Tensor& x) {
  if (name == "gelu") {
    return at::gelu(x);
  }
  // The same polynomial in two orders of evaluation.
  if (name == "gelu_new" || name == "gelu_fast") {
    return at::gelu(x, "tanh");
  }
  if (name == "relu") {
    return at::relu(x);
  }
  if (name == "tanh") {
    return at::tanh(x);
  }
  fail_usage("bigbird", "hidden_act is \"", name,
             "\"; it must be one of gelu, gelu_new, gelu_fast, relu, tanh");
}

}  // namespace remat::nn
