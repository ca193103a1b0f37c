#include "remat/runtime/saved_tensor_hooks.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <optional>

#include "remat/base/error.h"
#include "remat/runtime/engine.h"
#include "remat/runtime/hook_stack.h"

namespace remat {
namespace detail {
namespace {

using torch::autograd::SavedVariableHooks;

class UserHooks final : public SavedVariableHooks {
 public:
  UserHooks(PackFunction pack, HookNesting nesting)
      : pack_(std::move(pack)), nesting_(nesting) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    sizes_ = tensor.sizes().vec();
    dtype_ = tensor.scalar_type();
    device_ = tensor.device();
    // What the functions save themselves is not for them.
    const OuterHooksScope outer(hook_depth() - 1);
    packed_ = pack_(tensor);
    for (at::Tensor* kept : packed_->tensors()) {
      outer_.push_back(keep(*kept));
      if (outer_.back() != nullptr) {
        *kept = at::Tensor();
      }
    }
  }

  at::Tensor call_unpack_hook() override {
    const std::unique_ptr<PackedValue> packed = packed_->copy();
    const std::vector<at::Tensor*> tensors = packed->tensors();
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (outer_[i] != nullptr) {
        *tensors[i] = outer_[i]->call_unpack_hook();
      }
    }
    at::Tensor tensor = packed->unpack();
    check(tensor);
    return tensor;
  }

 private:
  // Gives the tensor to the hooks around, or keeps it without its graph, which
  // may own these hooks.
  std::unique_ptr<SavedVariableHooks> keep(at::Tensor& tensor) {
    if (!tensor.defined()) {
      return nullptr;
    }
    if (nesting_ == HookNesting::kThenOuter) {
      if (auto outer = innermost_hooks()) {
        outer->call_pack_hook(tensor);
        return outer;
      }
    }
    tensor = tensor.detach();
    return nullptr;
  }

  void check(const at::Tensor& tensor) const {
    if (!tensor.defined()) {
      fail("saved_tensor_hooks",
           "the unpack function returned an undefined tensor");
    }
    if (tensor.sizes() != at::IntArrayRef(sizes_) ||
        tensor.scalar_type() != dtype_ || tensor.device() != *device_) {
      fail("saved_tensor_hooks", "the unpack function returned ",
           c10::toString(tensor.scalar_type()), tensor.sizes(), " on ",
           tensor.device().str(), "; what was packed is ",
           c10::toString(dtype_), at::IntArrayRef(sizes_), " on ",
           device_->str());
    }
  }

  const PackFunction pack_;
  const HookNesting nesting_;
  std::vector<int64_t> sizes_;
  at::ScalarType dtype_ = at::kFloat;
  std::optional<at::Device> device_;
  std::unique_ptr<PackedValue> packed_;
  // One for each tensor in the packed value; null: it is kept there.
  std::vector<std::unique_ptr<SavedVariableHooks>> outer_;
};

class UserHandler final : public SavedTensorHandler {
 public:
  UserHandler(PackFunction pack, HookNesting nesting)
      : pack_(std::move(pack)), nesting_(nesting) {}

  std::unique_ptr<SavedVariableHooks> make_hooks() override {
    return std::make_unique<UserHooks>(pack_, nesting_);
  }

 private:
  const PackFunction pack_;
  const HookNesting nesting_;
};

}  // namespace
}  // namespace detail

struct SavedTensorHooks::State {
  detail::HookScope scope;
};

SavedTensorHooks::SavedTensorHooks(detail::PackFunction pack,
                                   HookNesting nesting) {
  detail::install_engine();
  state_.reset(new State{detail::HookScope(
      std::make_shared<detail::UserHandler>(std::move(pack), nesting))});
}

SavedTensorHooks::~SavedTensorHooks() = default;

SavedTensorHooksDisabled::SavedTensorHooksDisabled(std::string message) {
  detail::disable_hooks(std::move(message));
}

SavedTensorHooksDisabled::~SavedTensorHooksDisabled() {
  detail::enable_hooks();
}

}  // namespace remat
