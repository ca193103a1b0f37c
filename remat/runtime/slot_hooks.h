// What stands in a graph for a tensor that its owner will compute again: the
// number of a slot.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "remat/runtime/hook_stack.h"

namespace remat::detail {

// Owner has add_slot(tensor), which returns a number, unpack(number) and
// release(number). The slots own it.
template <class Owner>
class SlotHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit SlotHooks(std::shared_ptr<Owner> owner) : owner_(std::move(owner)) {}

  ~SlotHooks() override {
    if (slot_.has_value()) {
      owner_->release(*slot_);
    }
  }

  void call_pack_hook(const at::Tensor& tensor) override {
    slot_ = owner_->add_slot(tensor);
  }

  at::Tensor call_unpack_hook() override { return owner_->unpack(*slot_); }

 private:
  std::shared_ptr<Owner> owner_;
  std::optional<size_t> slot_;
};

template <class Owner>
class SlotHandler final : public SavedTensorHandler {
 public:
  explicit SlotHandler(std::shared_ptr<Owner> owner)
      : owner_(std::move(owner)) {}

  std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() override {
    return std::make_unique<SlotHooks<Owner>>(owner_);
  }

 private:
  std::shared_ptr<Owner> owner_;
};

}  // namespace remat::detail
