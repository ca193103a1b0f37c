#include "remat/store/host_store.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <utility>

#include "remat/base/error.h"
#include "remat/store/host_copies.h"
#include "remat/store/storage_span.h"

namespace remat {
namespace detail {
namespace {

// Tensors that are more than a view of bytes: the device's own ways there and
// back, which wait.
class WholeTensor final : public StoredTensor {
 public:
  WholeTensor(std::shared_ptr<HostCopies> copies, const at::Tensor& tensor)
      : copies_(std::move(copies)),
        host_(tensor.detach().to(at::kCPU, tensor.scalar_type(),
                                 /*non_blocking=*/false, /*copy=*/true)),
        device_(tensor.device()),
        bytes_(copies_->whole_tensor_stored(host_)) {}
  ~WholeTensor() override { copies_->whole_tensor_dropped(bytes_); }

  at::Tensor get() const override {
    copies_->whole_tensor_restored(bytes_);
    return host_.to(device_, host_.scalar_type(), /*non_blocking=*/false,
                    /*copy=*/true);
  }

 private:
  const std::shared_ptr<HostCopies> copies_;
  const at::Tensor host_;
  const at::Device device_;
  const int64_t bytes_;
};

class ViewOfCopy final : public StoredTensor {
 public:
  ViewOfCopy(const at::Tensor& tensor, std::shared_ptr<HostCopy> copy)
      : layout_(tensor), copy_(std::move(copy)) {}

  at::Tensor get() const override {
    return layout_.in(copy_->restore(), copy_->begin());
  }

 private:
  const TensorLayout layout_;
  const std::shared_ptr<HostCopy> copy_;
};

// Without elements there is nothing to copy.
class EmptyTensor final : public StoredTensor {
 public:
  explicit EmptyTensor(const at::Tensor& tensor)
      : layout_(tensor), device_(tensor.device()) {}

  at::Tensor get() const override {
    const at::Tensor memory =
        at::empty({0}, at::TensorOptions(at::kByte).device(device_));
    return layout_.in(memory.storage(), 0);
  }

 private:
  const TensorLayout layout_;
  const at::Device device_;
};

}  // namespace
}  // namespace detail

HostStoreOptions& HostStoreOptions::copies_in_flight(int64_t count) {
  if (count < 0) {
    fail("host_store", "copies_in_flight is ", count,
         "; it must not be less than 0");
  }
  copies_in_flight_ = count;
  return *this;
}

HostStoreOptions& HostStoreOptions::prefetch(int64_t count) {
  if (count < 0) {
    fail("host_store", "prefetch is ", count, "; it must not be less than 0");
  }
  prefetch_ = count;
  return *this;
}

HostStore::HostStore(HostStoreOptions options)
    : copies_(std::make_shared<detail::HostCopies>(options)) {}

HostStore::~HostStore() = default;

std::shared_ptr<const StoredTensor> HostStore::put(const at::Tensor& tensor) {
  const c10::AutoGradMode no_grad(false);
  if (!detail::has_plain_storage(tensor)) {
    return std::make_shared<detail::WholeTensor>(copies_, tensor);
  }
  if (tensor.numel() == 0) {
    return std::make_shared<detail::EmptyTensor>(tensor);
  }
  return std::make_shared<detail::ViewOfCopy>(tensor, copies_->copy_of(tensor));
}

HostStoreStatistics HostStore::statistics() const {
  return copies_->statistics();
}

void HostStore::trim() { copies_->trim(); }

std::shared_ptr<HostStore> host_store(HostStoreOptions options) {
  return std::make_shared<HostStore>(options);
}

}  // namespace remat
