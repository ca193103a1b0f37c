// How a tensor lies in its memory, without the memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <vector>

namespace remat::detail {

struct TensorLayout {
  // Of a tensor with storage.
  static TensorLayout of(const at::Tensor& tensor);

  // The tensor in the memory of `flat` (flat_memory()), at the place it had;
  // shares flat's version counter.
  at::Tensor in(const at::Tensor& flat) const;

  // The tensor in the storage that it was in, with this version counter: no
  // change is counted.
  at::Tensor in(c10::Storage storage, c10::VariableVersion version) const;

  // A tensor of this shape, of zeros.
  at::Tensor zeros() const;

  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;  // in elements
  at::TensorOptions options;
  bool conjugated = false;
  bool negated = false;
};

// The whole memory of a tensor with storage as one row, without its graph;
// shares its version counter.
at::Tensor flat_memory(const at::Tensor& tensor);

// Whether both are in one storage; undefined tensors, and those without
// storage, are in none.
bool shares_memory(const at::Tensor& a, const at::Tensor& b);

}  // namespace remat::detail
