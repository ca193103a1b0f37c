// One region between its forward and the end of its graph: what it needs to run
// again, and the values of a recomputation until backward has used them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "remat/runtime/autocast_state.h"
#include "remat/runtime/checkpoint.h"
#include "remat/runtime/engine.h"
#include "remat/runtime/hook_stack.h"
#include "remat/runtime/kept_results.h"
#include "remat/runtime/process_settings.h"
#include "remat/runtime/random_state.h"
#include "remat/runtime/recompute_context.h"
#include "remat/runtime/region_state.h"
#include "remat/runtime/tensor_layout.h"

namespace remat::detail {

class Recomputation;

// Each tensor that autograd saves in the region's forward is a slot. The slots
// own the region: it dies with the last of them.
class Region final : public BackwardListener,
                     public std::enable_shared_from_this<Region> {
 public:
  // Saves the inputs through the hooks around the region, so that in a nested
  // region they are slots of the enclosing one.
  Region(const CheckpointOptions& options,
         std::shared_ptr<RegionFunction> function,
         const std::vector<at::Tensor>& inputs);

  // Takes what it must replay besides the inputs. Enclosing regions take it
  // too: their recomputation runs this forward again.
  void forward_begins();

  // What its policy keeps; null without a policy.
  KeptResults* kept() { return kept_.has_value() ? &*kept_ : nullptr; }

  // Those of the forward, with CheckpointOptions::debug().
  std::vector<std::string>& operators() { return operators_; }

  // After forward: throws CheckpointError if an input was changed in place.
  void check_inputs() const;

  // Forward: a saved tensor becomes a slot, and is not kept.
  size_t add_slot(const at::Tensor& tensor);

  // Lets go of inputs that were changed in place: their new graph owns this
  // region, which would own them.
  void forward_ended();

  // Backward: the slot's value, recomputed if this backward has not got it yet.
  at::Tensor unpack(size_t slot);

  // The slot will not be asked for again.
  void release(size_t slot);

  void backward_ended(uint64_t backward_id) override;

 private:
  friend class Recomputation;

  // What the forward saved, to be compared with the recomputation.
  struct Slot {
    bool alive = true;
    at::ScalarType dtype;
    at::Device device;
    std::vector<int64_t> sizes;
    std::optional<uint64_t> hash;  // with DeterminismCheck::kValues
    // Identity and version of the memory: a tensor from outside the region
    // must not have changed in between.
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage;
    int64_t version;
  };

  // A recomputed value; after it was handed out, only what finds it again
  // while somebody holds it.
  struct Value {
    at::Tensor tensor;
    int64_t version = 0;
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage;
    c10::VariableVersion counter;
    TensorLayout layout;
  };
  using Values = std::vector<Value>;

  void recompute(Values& values);
  at::Tensor hand_out(Value& value, size_t slot) const;
  bool is_buffer(const at::Tensor& tensor) const;
  std::string title() const;

  const CheckpointOptions options_;
  const std::shared_ptr<RegionFunction> function_;
  // Before the inputs: on libtorch 1.13 a SavedVariable knows the accumulator
  // of a leaf only weakly, and an input is saved before any node refers to it.
  // (How a node is owned differs between versions: hence decltype.)
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator({}));
  std::vector<Accumulator> leaf_accumulators_;
  std::vector<torch::autograd::SavedVariable> inputs_;
  bool inputs_dropped_ = false;
  // In forward only.
  std::vector<std::pair<at::Tensor, int64_t>> input_versions_;
  std::optional<RandomState> random_state_;
  AutocastState autocast_state_;
  ProcessSettings settings_ = ProcessSettings::now();
  std::optional<KeptResults> kept_;
  std::vector<std::string> operators_;
  // Its own and those of regions inside it, in the order of their forward.
  std::vector<ReplayState> states_;
  std::vector<at::Tensor> buffers_;
  Region* enclosing_ = nullptr;  // in forward only
  RecomputeContext context_;
  bool forward_ended_ = false;

  // One backward at a time; recursive, because a region may run backward
  // inside.
  std::recursive_mutex mutex_;
  std::vector<Slot> slots_;
  std::map<uint64_t, Values> values_by_backward_;
};

// A recomputation is no part of the forward that it happens to run in.
class NoEnclosingRegion {
 public:
  NoEnclosingRegion();
  ~NoEnclosingRegion();
  NoEnclosingRegion(const NoEnclosingRegion&) = delete;
  NoEnclosingRegion& operator=(const NoEnclosingRegion&) = delete;

 private:
  Region* outer_;
};

}  // namespace remat::detail
