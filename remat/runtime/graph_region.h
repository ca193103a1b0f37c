// A function whose saved values are computed again operator by operator, from
// the tape of its forward: between its forward and the end of its graph.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "remat/runtime/engine.h"
#include "remat/runtime/hook_stack.h"
#include "remat/runtime/operator_tape.h"
#include "remat/runtime/process_settings.h"
#include "remat/runtime/tape_replay.h"

namespace remat::detail {

// Each tensor that autograd saves is a slot, and the slots own the region, as
// in Region. Values that depend on each other without a held one in between are
// a part; the first slot of a part that a backward asks for computes the part.
class GraphRegion final : public BackwardListener,
                          public std::enable_shared_from_this<GraphRegion> {
 public:
  explicit GraphRegion(OperatorTape::Choice choice)
      : tape_(std::move(choice)), hook_depth_(hook_depth()) {}

  OperatorTape& tape() { return tape_; }

  // Forward: a saved tensor becomes a slot.
  size_t add_slot(const at::Tensor& tensor);

  // Finds the parts, gives the held values that they start from to the hooks
  // around, and lets go of all else. Without it (the function threw) each value
  // is computed for itself.
  void forward_ended();

  // Backward: the slot's value.
  at::Tensor unpack(size_t slot);

  // The slot will not be asked for again.
  void release(size_t slot);

  void backward_ended(uint64_t backward_id) override;

  // The values that slots hold: for planning.
  std::vector<ValueId> saved_values() const;

 private:
  struct Slot {
    bool alive = true;
    TapedTensor tensor;
    // A tensor without memory of the usual kind (sparse) is kept as it is: with
    // its version when it was saved, and after forward by the hooks around.
    bool is_opaque = false;
    at::Tensor itself;
    std::optional<uint32_t> version;
    std::optional<torch::autograd::SavedVariable> packed;
  };
  // A value that was computed for a backward, for slots that have not asked.
  struct Computed {
    at::Tensor memory;
    size_t slots_left = 0;
    // Finds it again while somebody holds it.
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage;
    at::TensorOptions options;
  };
  // A held value that a backward has taken back, for the rest of those who need
  // it: it may itself have been computed again by a region around.
  struct Taken {
    at::Tensor memory;
    size_t needs_left = 0;
  };
  struct Pass {
    std::unordered_map<ValueId, Computed> values;
    std::unordered_map<ValueId, Taken> taken;
    std::vector<bool> served;  // slots
    std::unordered_set<size_t> parts_computed;
  };

  // What is computed at once, and from which held values.
  struct Part {
    size_t slots_left = 0;
    std::vector<size_t> slots;
    std::vector<ValueId> sources;
  };

  bool is_held(ValueId id) const;
  at::Tensor held(ValueId id) const;
  static at::Tensor opaque(const Slot& slot);
  at::Tensor take(ValueId id, bool first_time, Pass& pass);
  void need_no_more(ValueId id, Pass& pass, std::vector<at::Tensor>& freed);
  ValueMemory compute(const std::vector<ValueId>& wanted,
                      const std::function<at::Tensor(ValueId)>& source) const;
  void compute_part(ValueId id, Pass& pass);
  at::Tensor serve(size_t slot, Pass& pass);
  size_t part_of(ValueId id) const;
  static void let_go(Computed& computed);
  void find_parts(const std::vector<size_t>& operators);
  void pack_held();
  void drop_holder(ValueId id,
                   std::vector<torch::autograd::SavedVariable>& freed);

  OperatorTape tape_;
  const size_t hook_depth_;
  const ProcessSettings settings_ = ProcessSettings::now();
  std::vector<Slot> slots_;
  bool forward_ended_ = false;
  // After forward.
  std::vector<size_t> part_of_operator_;
  std::unordered_map<size_t, Part> parts_;
  std::unordered_map<ValueId, torch::autograd::SavedVariable> packed_;
  // How many parts and slots alive need each of those.
  std::unordered_map<ValueId, size_t> holders_;

  // One backward at a time; recursive, because a hook may run another inside.
  mutable std::recursive_mutex mutex_;
  std::map<uint64_t, Pass> passes_;
};

}  // namespace remat::detail
