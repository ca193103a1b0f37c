#include "remat/store/storage_span.h"

#include <c10/core/TensorOptions.h>

#include <algorithm>
#include <utility>

namespace remat::detail {
namespace {

constexpr int64_t kAlignment = 64;

c10::DispatchKeySet keys_of(at::Device device, at::ScalarType dtype) {
  return c10::DispatchKeySet(
      c10::computeDispatchKey(dtype, at::kStrided, device));
}

int64_t item_bytes(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.dtype().itemsize());
}

}  // namespace

bool has_plain_storage(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.has_storage() &&
         !tensor.is_quantized() && !tensor._is_zerotensor() &&
         (tensor.numel() == 0 || tensor.storage().data_ptr());
}

Span covered_span(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return {};
  }
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    last += (tensor.size(i) - 1) * tensor.stride(i);
  }
  const int64_t begin = tensor.storage_offset() * item_bytes(tensor);
  return {begin, begin + (last + 1) * item_bytes(tensor)};
}

Span moved_span(const at::Tensor& tensor) {
  Span span = covered_span(tensor);
  const auto storage_bytes = static_cast<int64_t>(tensor.storage().nbytes());
  if (span.bytes() * 2 >= storage_bytes) {
    return {0, span.bytes() == 0 ? 0 : storage_bytes};
  }
  span.begin -= span.begin % kAlignment;
  return span;
}

at::Tensor byte_tensor(const c10::Storage& storage, const Span& span) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), keys_of(storage.device(), at::kByte),
      caffe2::TypeMeta::Make<uint8_t>());
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_offset(span.begin);
  impl->set_sizes_contiguous({span.bytes()});
  return tensor;
}

TensorLayout::TensorLayout(const at::Tensor& tensor)
    : sizes_(tensor.sizes().vec()),
      strides_(tensor.strides().vec()),
      offset_bytes_(tensor.storage_offset() * item_bytes(tensor)),
      dtype_(tensor.dtype()),
      keys_(keys_of(tensor.device(), tensor.scalar_type())),
      conjugate_(tensor.is_conj()),
      negative_(tensor.is_neg()) {}

at::Tensor TensorLayout::in(const c10::Storage& storage, int64_t begin) const {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), keys_, dtype_);
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_offset((offset_bytes_ - begin) /
                           static_cast<int64_t>(dtype_.itemsize()));
  impl->set_sizes_and_strides(sizes_, strides_);
  tensor._set_conj(conjugate_);
  tensor._set_neg(negative_);
  return tensor;
}

}  // namespace remat::detail
