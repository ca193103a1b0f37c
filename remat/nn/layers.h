// Parameters with the operations that use them, as plain tensors.
//
// For the sources of remat/nn.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace remat::nn {

// Parameters by name, in the order of registration.
using NamedParameters = std::vector<std::pair<std::string, at::Tensor>>;

// How fresh parameters are made: normal(0, range) from ATen's generator.
struct WeightInit {
  double range = 0.02;
};

struct Linear {
  Linear() = default;
  Linear(const WeightInit& init, int64_t inputs, int64_t outputs,
         bool with_bias = true);

  // [..., inputs] -> [..., outputs].
  at::Tensor operator()(const at::Tensor& x) const;
  void add_to(NamedParameters& parameters, const std::string& name) const;

  at::Tensor weight;  // [outputs, inputs]
  at::Tensor bias;    // [outputs]; undefined without bias
};

struct LayerNorm {
  LayerNorm() = default;
  LayerNorm(int64_t size, double eps);

  at::Tensor operator()(const at::Tensor& x) const;
  void add_to(NamedParameters& parameters, const std::string& name) const;

  at::Tensor weight;
  at::Tensor bias;
  double eps = 0;
};

// [rows, size]; the row of padding (-1: none) begins as zeros.
at::Tensor make_embedding(const WeightInit& init, int64_t rows, int64_t size,
                          int64_t padding_row = -1);

// One of gelu, gelu_new, gelu_fast, relu, tanh. The name is a BigBirdConfig's,
// so it is known; throws UsageError otherwise.
at::Tensor activate(std::string_view name, const at::Tensor& x);

}  // namespace remat::nn
