#include "remat/runtime/unpinned_input.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "remat/runtime/operator_scope.h"
#include "remat/runtime/tensor_layout.h"

namespace remat::detail {
namespace {

using torch::autograd::SavedVariable;

// With its graph, the tensor would own the node that owns what saves it, if it
// is that node's result.
at::Tensor without_graph(const at::Tensor& tensor) {
  const OperatorScope unseen(nullptr);
  return tensor.detach();
}

class UnpinnedHooks final : public torch::autograd::SavedVariableHooks {
 public:
  UnpinnedHooks(UnpinnedInputs inputs, size_t depth)
      : inputs_(std::move(inputs)), depth_(depth) {}

  ~UnpinnedHooks() override {
    if (input_ != nullptr) {
      input_->remove_user(last_backward_);
    }
  }

  void call_pack_hook(const at::Tensor& tensor) override {
    const UnpinnedInputs inputs = std::exchange(inputs_, {});
    for (const auto& input : inputs) {
      if (input->holds(tensor)) {
        layout_ = TensorLayout::of(tensor);
        input->add_user();
        input_ = input;
        return;
      }
    }
    const OuterHooksScope outer(depth_);
    kept_.emplace(without_graph(tensor), /*is_output=*/false);
  }

  at::Tensor call_unpack_hook() override {
    if (input_ == nullptr) {
      return kept_->unpack();
    }
    const BackwardPass* const backward = current_backward_pass();
    const uint64_t id = backward == nullptr ? 0 : backward->id();
    const bool is_first = backward != nullptr && last_backward_ != id;
    const at::Tensor memory = input_->memory(is_first);
    last_backward_ = id;
    return layout_.in(memory);
  }

 private:
  // Until the tensor comes.
  UnpinnedInputs inputs_;
  const size_t depth_;
  // Null if the tensor is in none's memory.
  std::shared_ptr<UnpinnedInput> input_;
  TensorLayout layout_;
  std::optional<SavedVariable> kept_;
  uint64_t last_backward_ = 0;
};

}  // namespace

UnpinnedInput::UnpinnedInput(const at::Tensor& value, SavedVariable saved)
    : value_(std::move(saved)) {
  if (value.has_storage() && !value.is_inference()) {
    storage_ = value.storage().unsafeGetStorageImpl();
    version_ = value._version();
  }
}

bool UnpinnedInput::holds(const at::Tensor& tensor) const {
  return storage_ != nullptr && tensor.has_storage() &&
         !tensor.is_inference() &&
         tensor.storage().unsafeGetStorageImpl() == storage_ &&
         static_cast<uint32_t>(tensor._version()) == version_;
}

void UnpinnedInput::add_user() {
  const std::lock_guard lock(mutex_);
  ++users_;
}

void UnpinnedInput::remove_user(uint64_t last_backward) {
  // Freed after the lock is.
  std::vector<at::Tensor> freed;
  const std::lock_guard lock(mutex_);
  --users_;
  for (auto& [id, pass] : passes_) {
    // A node frees what it saved right after its backward, while the others
    // are still to come.
    pass.served -= id == last_backward ? 1 : 0;
    if (pass.served >= users_) {
      freed.push_back(std::exchange(pass.memory, at::Tensor()));
    }
  }
}

at::Tensor UnpinnedInput::memory(bool is_first) {
  const std::lock_guard lock(mutex_);
  BackwardPass* const backward = current_backward_pass();
  if (backward == nullptr) {
    return flat_memory(value_.unpack());
  }
  const auto [entry, is_new] = passes_.try_emplace(backward->id());
  if (is_new) {
    backward->add_listener(shared_from_this());
  }
  // The recomputation may end passes of its own, not this one.
  Pass& pass = entry->second;
  at::Tensor memory = pass.memory;
  if (!memory.defined()) {
    memory = flat_memory(value_.unpack());
  }
  pass.served += is_first ? 1 : 0;
  pass.memory = pass.served < users_ ? memory : at::Tensor();
  return memory;
}

void UnpinnedInput::backward_ended(uint64_t backward_id) {
  Pass freed;
  const std::lock_guard lock(mutex_);
  const auto entry = passes_.find(backward_id);
  if (entry != passes_.end()) {
    freed = std::move(entry->second);
    passes_.erase(entry);
  }
}

void note_outputs(UnpinnedInputs* unpinned,
                  const std::vector<at::Tensor>& outputs,
                  const std::vector<at::Tensor>& inputs) {
  const bool is_new = unpinned != nullptr && unpinned->empty();
  for (const at::Tensor& output : outputs) {
    if (!output.defined() ||
        std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) {
          return shares_memory(input, output);
        })) {
      continue;
    }
    SavedVariable saved(output, /*is_output=*/false);
    if (is_new) {
      unpinned->push_back(
          std::make_shared<UnpinnedInput>(output, std::move(saved)));
    }
  }
}

UnpinnedInputHandler::UnpinnedInputHandler(UnpinnedInputs inputs)
    : inputs_(std::move(inputs)), depth_(hook_depth()) {}

std::unique_ptr<torch::autograd::SavedVariableHooks>
UnpinnedInputHandler::make_hooks() {
  return std::make_unique<UnpinnedHooks>(inputs_, depth_);
}

}  // namespace remat::detail
