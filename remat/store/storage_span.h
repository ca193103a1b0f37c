// The bytes of a storage that a tensor covers, and tensors made of bytes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <vector>

namespace remat::detail {

// Bytes [begin, end) of a storage.
struct Span {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t bytes() const { return end - begin; }
  bool covers(const Span& other) const {
    return begin <= other.begin && other.end <= end;
  }
};

// Whether the tensor is nothing but a view of its storage.
bool has_plain_storage(const at::Tensor& tensor);

// Exactly what the elements of a plain tensor cover; empty without elements.
Span covered_span(const at::Tensor& tensor);

// What is moved for it: everything from half of the storage on; begins at a
// multiple of 64, so that what is restored is aligned as before, and kernels
// that choose by alignment choose the same.
Span moved_span(const at::Tensor& tensor);

// A tensor of bytes in the storage.
at::Tensor byte_tensor(const c10::Storage& storage, const Span& span);

// How a plain tensor lies in its storage; made and used without operators,
// which others would see.
class TensorLayout {
 public:
  explicit TensorLayout(const at::Tensor& tensor);

  // The same in a storage whose first byte was the byte `begin` of the old one.
  at::Tensor in(const c10::Storage& storage, int64_t begin) const;

 private:
  std::vector<int64_t> sizes_;
  std::vector<int64_t> strides_;
  int64_t offset_bytes_;
  caffe2::TypeMeta dtype_;
  c10::DispatchKeySet keys_;
  bool conjugate_;
  bool negative_;
};

}  // namespace remat::detail
