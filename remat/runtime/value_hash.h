// A number that tells whether two tensors hold the same values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace remat::detail {

// 64 bits of XXH3 over the tensor's elements in order, bit by bit, whatever its
// strides. None for tensors without values in memory: meta and sparse ones.
std::optional<uint64_t> value_hash(const at::Tensor& tensor);

}  // namespace remat::detail
