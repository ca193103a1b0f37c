// Dropout whose mask is computed, not stored: a function of a seed and of the
// index of the element. The same mask whatever the thread count, and the same
// again when a region is recomputed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace remat {

// x * mask / (1 - p), mask[i] = 1 with probability 1 - p, from Philox4x32-10
// with the seed as key and i / 4 as counter. Backward keeps the seed alone and
// computes the mask again; it is differentiable twice.
//
// x: floating point, any shape; elements are counted in the order of x's
// logical (row-major) index, so strides do not matter. p in [0, 1]; 0 returns
// x itself, 1 zeros. Throws UsageError for another p or dtype.
at::Tensor stateless_dropout(const at::Tensor& x, double p, uint64_t seed);

// A drop-in for torch::nn::Dropout. In training each call takes its seed from
// next_layer_seed(layer_seed); in evaluation, and with p = 0, it is the
// identity and draws nothing.
class Dropout {
 public:
  // Throws UsageError unless 0 <= p <= 1.
  explicit Dropout(double p = 0.5,
                   std::optional<uint64_t> layer_seed = std::nullopt);

  at::Tensor operator()(const at::Tensor& x) const { return forward(x); }
  at::Tensor forward(const at::Tensor& x) const;

  void train(bool on = true) { training_ = on; }
  void eval() { training_ = false; }
  bool is_training() const { return training_; }
  double p() const { return p_; }

 private:
  double p_;
  std::optional<uint64_t> layer_seed_;
  bool training_ = true;
};

}  // namespace remat
