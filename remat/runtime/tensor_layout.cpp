#include "remat/runtime/tensor_layout.h"

#include <ATen/ATen.h>
#include <c10/core/Storage.h>

namespace remat::detail {
namespace {

at::Tensor on_memory_of(const at::Tensor& tensor,
                        const at::TensorOptions& options, int64_t offset,
                        at::IntArrayRef sizes, at::IntArrayRef strides) {
  at::Tensor result = at::empty({0}, options.requires_grad(c10::nullopt));
  result.unsafeGetTensorImpl()->set_version_counter(
      tensor.unsafeGetTensorImpl()->version_counter());
  // By the implementation: set_ would count as a change.
  result.unsafeGetTensorImpl()->set_storage_keep_dtype(tensor.storage());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  result.unsafeGetTensorImpl()->set_storage_offset(offset);
  return result;
}

}  // namespace

TensorLayout TensorLayout::of(const at::Tensor& tensor) {
  return {.sizes = tensor.sizes().vec(),
          .strides = tensor.strides().vec(),
          .offset = tensor.storage_offset(),
          .options = tensor.options(),
          .conjugated = tensor.is_conj(),
          .negated = tensor.is_neg()};
}

at::Tensor TensorLayout::in(const at::Tensor& flat) const {
  const auto item = static_cast<int64_t>(options.dtype().itemsize());
  const int64_t first =
      flat.storage_offset() * static_cast<int64_t>(flat.itemsize()) / item;
  at::Tensor tensor = on_memory_of(flat, options.device(flat.device()),
                                   offset + first, sizes, strides);
  tensor._set_conj(conjugated);
  tensor._set_neg(negated);
  return tensor;
}

at::Tensor TensorLayout::zeros() const {
  return at::zeros(sizes, options.requires_grad(c10::nullopt));
}

at::Tensor flat_memory(const at::Tensor& tensor) {
  const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  const auto item = static_cast<int64_t>(tensor.itemsize());
  return bytes % item == 0
             ? on_memory_of(tensor, tensor.options(), 0, {bytes / item}, {1})
             : on_memory_of(tensor, tensor.options().dtype(at::kByte), 0,
                            {bytes}, {1});
}

}  // namespace remat::detail
