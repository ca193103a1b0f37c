// A stage whose saved state waits for backward while its input does not: what
// autograd saves of the input comes from the region that computed it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "remat/runtime/engine.h"
#include "remat/runtime/hook_stack.h"

namespace remat::detail {

// The output of a region, which nobody keeps.
//
// Owned by what stands in the graph for the tensors that the stage saved.
class UnpinnedInput final : public BackwardListener,
                            public std::enable_shared_from_this<UnpinnedInput> {
 public:
  // At the end of the region's function: makes its output one of the values
  // that the region computes again. The forward's call is the one that counts;
  // in a recomputation, when `input` has its value or is gone (null), the
  // output takes its place among the values of the region all the same.
  static void note(UnpinnedInput* input, const at::Tensor& value);

  // Whether the tensor is in the input's memory, unchanged since note().
  bool holds(const at::Tensor& tensor) const;

  // One tensor of the input's memory that was saved.
  void add_user();
  void remove_user();

  // The whole memory of the input, as flat_memory(), computed again once a
  // backward pass: it stays until every user has had it, or the pass ends.
  // is_first: whether this user has not asked in this pass.
  at::Tensor memory(bool is_first);

  void backward_ended(uint64_t backward_id) override;

 private:
  struct Pass {
    at::Tensor memory;
    size_t served = 0;
  };

  // Recursive, as a region's: its recomputation may run backward inside.
  mutable std::recursive_mutex mutex_;
  std::optional<torch::autograd::SavedVariable> value_;
  const c10::StorageImpl* storage_ = nullptr;
  uint32_t version_ = 0;
  size_t users_ = 0;
  std::map<uint64_t, Pass> passes_;
};

// For the stage's forward: its saved tensors that lie in the input's memory are
// left to the input, all others go to the hooks around.
class UnpinnedInputHandler final : public SavedTensorHandler {
 public:
  explicit UnpinnedInputHandler(std::shared_ptr<UnpinnedInput> input);

  std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() override;

 private:
  const std::shared_ptr<UnpinnedInput> input_;
  const size_t depth_;
};

}  // namespace remat::detail
