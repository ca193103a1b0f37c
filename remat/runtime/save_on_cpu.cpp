#include "remat/runtime/save_on_cpu.h"

#include <c10/core/Storage.h>

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "remat/base/error.h"
#include "remat/runtime/operator_scope.h"
#include "remat/store/storage_span.h"

namespace remat {
namespace {

// The storages of tensors that are not moved, for as long as they live.
class StayingStorages {
 public:
  void add(const at::Tensor& tensor) {
    if (tensor.has_storage()) {
      const std::lock_guard lock(mutex_);
      storages_.try_emplace(tensor.storage().unsafeGetStorageImpl(),
                            tensor.storage().getWeakStorageImpl());
    }
  }

  // The weak reference keeps the address of a storage that is gone from being
  // another one's.
  bool have(const at::Tensor& tensor) const {
    if (!tensor.has_storage()) {
      return false;
    }
    const std::lock_guard lock(mutex_);
    return storages_.count(tensor.storage().unsafeGetStorageImpl()) > 0;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const c10::StorageImpl*,
                     c10::weak_intrusive_ptr<c10::StorageImpl>>
      storages_;
};

bool is_parameter(const at::TensorBase& tensor) {
  return tensor.is_leaf() && tensor.requires_grad();
}

// What is kept for one saved tensor.
struct Saved {
  std::shared_ptr<const StoredTensor> stored;
  at::Tensor stayed;  // without its graph, which may own the hooks
  // Hooks take the place of autograd's own check.
  c10::VariableVersion version;
  uint32_t version_number = 0;
};

at::Tensor restore(const Saved& saved) {
  // Copies are not the region's operators.
  const detail::OperatorScope no_operators(nullptr);
  at::Tensor tensor =
      saved.stored != nullptr ? saved.stored->get() : saved.stayed;
  if (saved.version.enabled() &&
      saved.version.current_version() != saved.version_number) {
    fail("save_on_cpu", "a saved tensor (", c10::toString(tensor.scalar_type()),
         tensor.sizes(), " on ", tensor.device().str(),
         ") was changed in place before backward: it is at version ",
         saved.version.current_version(), ", and was saved at version ",
         saved.version_number, "; change a clone instead");
  }
  return tensor;
}

}  // namespace

SaveOnCpuOptions& SaveOnCpuOptions::min_bytes(int64_t value) {
  if (value < 0) {
    fail("save_on_cpu", "min_bytes is ", value, "; it must not be less than 0");
  }
  min_bytes_ = value;
  return *this;
}

struct SaveOnCpu::State {
  explicit State(SaveOnCpuOptions the_options)
      : options(std::move(the_options)) {
    if (options.store() == nullptr) {
      options.store(host_store());
    }
    for (const at::Tensor& tensor : options.stay()) {
      if (tensor.defined()) {
        staying.add(tensor);
      }
    }
    // Held weakly only: whoever named them may drop them.
    options.stay({});
  }

  Saved save(const at::Tensor& tensor) {
    const detail::OperatorScope no_operators(nullptr);
    Saved saved;
    saved.version = tensor.unsafeGetTensorImpl()->version_counter();
    if (saved.version.enabled()) {
      saved.version_number = saved.version.current_version();
    }
    if (stays(tensor)) {
      ++stayed;
      saved.stayed = tensor.detach();
    } else {
      saved.stored = options.store()->put(tensor);
    }
    return saved;
  }

  bool stays(const at::Tensor& tensor) {
    if (tensor.is_cpu() || tensor.is_meta()) {
      return true;
    }
    if (options.skip_parameters() &&
        (is_parameter(tensor) ||
         (tensor.is_view() && is_parameter(tensor._base())))) {
      staying.add(tensor);
      return true;
    }
    return staying.have(tensor) ||
           (detail::has_plain_storage(tensor) &&
            detail::covered_span(tensor).bytes() < options.min_bytes());
  }

  SaveOnCpuOptions options;
  StayingStorages staying;
  std::atomic<int64_t> stayed{0};
};

SaveOnCpu::SaveOnCpu(SaveOnCpuOptions options)
    : state_(std::make_shared<State>(std::move(options))),
      hooks_([state = state_](
                 const at::Tensor& tensor) { return state->save(tensor); },
             restore) {}

SaveOnCpu::SaveOnCpu(bool pin_memory)
    : SaveOnCpu(SaveOnCpuOptions().store(
          host_store(HostStoreOptions().pin_memory(pin_memory)))) {}

const std::shared_ptr<HostStore>& SaveOnCpu::store() const {
  return state_->options.store();
}

int64_t SaveOnCpu::tensors_stayed() const { return state_->stayed; }

}  // namespace remat
