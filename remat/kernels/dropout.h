// The passes behind stateless dropout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace remat::kernels {

// A new contiguous tensor with x[i] * (keep(i) ? 1 / (1 - p) : 0), where
// keep(i) = word (i % 4) of philox4x32(counter i / 4, key seed) >= p * 2^32.
// Counter words: {low, high, 0, 0} of i / 4. i is the row-major index.
//
// x: float, double, bfloat16 or half of any strides; 0 < p < 1. bfloat16 and
// half are multiplied in float and rounded. Not differentiable. Throws
// UsageError for another p or dtype. On other devices than the CPU:
// dropout_aten.
at::Tensor dropout(const at::Tensor& x, double p, uint64_t seed);

// The same in ATen operations, with the same mask, on any device.
at::Tensor dropout_aten(const at::Tensor& x, double p, uint64_t seed);

// The mask alone as float 0 or 1, in the simplest way: the oracle in tests.
at::Tensor dropout_mask_reference(at::IntArrayRef sizes, double p,
                                  uint64_t seed);

}  // namespace remat::kernels
