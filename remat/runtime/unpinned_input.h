// A stage whose saved state waits for backward while its inputs do not: what
// autograd saves of them comes from the region that computed it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "remat/runtime/engine.h"
#include "remat/runtime/hook_stack.h"

namespace remat::detail {

// An output of a region, which nobody keeps.
//
// Owned by what stands in the graph for the tensors that the stage saved.
class UnpinnedInput final : public BackwardListener,
                            public std::enable_shared_from_this<UnpinnedInput> {
 public:
  // value: in the region, where `saved` saved it.
  UnpinnedInput(const at::Tensor& value, torch::autograd::SavedVariable saved);

  // Whether the tensor is in the input's memory, unchanged since then.
  bool holds(const at::Tensor& tensor) const;

  // One tensor of the input's memory that was saved; when it goes, the pass
  // that it last had the memory in (0: none).
  void add_user();
  void remove_user(uint64_t last_backward);

  // The whole memory of the input, as flat_memory(), computed again once a
  // backward pass: it stays until every user has had it, or the pass ends.
  // is_first: whether this user has not asked in this pass.
  at::Tensor memory(bool is_first);

  void backward_ended(uint64_t backward_id) override;

 private:
  struct Pass {
    at::Tensor memory;
    size_t served = 0;  // of the users that there are
  };

  // Recursive, as a region's: its recomputation may run backward inside.
  mutable std::recursive_mutex mutex_;
  const torch::autograd::SavedVariable value_;
  const c10::StorageImpl* storage_ = nullptr;
  uint32_t version_ = 0;
  size_t users_ = 0;
  std::map<uint64_t, Pass> passes_;
};

using UnpinnedInputs = std::vector<std::shared_ptr<UnpinnedInput>>;

// At the end of the region's function: makes its outputs values that the region
// computes again, but for those that are its inputs. The forward's call fills
// `unpinned`; in a recomputation, when it is filled or gone (null), the outputs
// take their places among the values of the region all the same.
void note_outputs(UnpinnedInputs* unpinned,
                  const std::vector<at::Tensor>& outputs,
                  const std::vector<at::Tensor>& inputs);

// For the stage's forward: its saved tensors that lie in an unpinned input's
// memory are left to that, all others go to the hooks around.
class UnpinnedInputHandler final : public SavedTensorHandler {
 public:
  explicit UnpinnedInputHandler(UnpinnedInputs inputs);

  std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() override;

 private:
  const UnpinnedInputs inputs_;
  const size_t depth_;
};

}  // namespace remat::detail
