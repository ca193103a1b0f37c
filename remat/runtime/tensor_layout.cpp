#include "remat/runtime/tensor_layout.h"

#include <ATen/ATen.h>
#include <c10/core/Storage.h>

namespace remat::detail {
namespace {

// By the implementation: set_ would count as a change.
at::Tensor tensor_in(c10::Storage storage, c10::VariableVersion version,
                     const at::TensorOptions& options, int64_t offset,
                     at::IntArrayRef sizes, at::IntArrayRef strides) {
  at::Tensor result = at::empty({0}, options.requires_grad(c10::nullopt));
  c10::TensorImpl& impl = *result.unsafeGetTensorImpl();
  impl.set_version_counter(std::move(version));
  impl.set_storage_keep_dtype(std::move(storage));
  impl.set_sizes_and_strides(sizes, strides);
  impl.set_storage_offset(offset);
  return result;
}

const c10::VariableVersion& version_counter(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter();
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
  TensorLayout there = *this;
  const auto item = static_cast<int64_t>(options.dtype().itemsize());
  there.offset +=
      flat.storage_offset() * static_cast<int64_t>(flat.itemsize()) / item;
  there.options = options.device(flat.device());
  return there.in(flat.storage(), version_counter(flat));
}

at::Tensor TensorLayout::in(c10::Storage storage,
                            c10::VariableVersion version) const {
  at::Tensor tensor = tensor_in(std::move(storage), std::move(version), options,
                                offset, sizes, strides);
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
  const bool is_whole = bytes % item == 0;
  return tensor_in(
      tensor.storage(), version_counter(tensor),
      is_whole ? tensor.options() : tensor.options().dtype(at::kByte), 0,
      {is_whole ? bytes / item : bytes}, {1});
}

bool shares_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.has_storage() && b.has_storage() &&
         a.storage().unsafeGetStorageImpl() ==
             b.storage().unsafeGetStorageImpl();
}

}  // namespace remat::detail
