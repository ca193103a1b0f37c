#include "remat/runtime/recomputation.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "remat/base/error.h"
#include "remat/memory/owner.h"
#include "remat/runtime/context_guard.h"
#include "remat/runtime/operator_log.h"
#include "remat/runtime/process_settings.h"
#include "remat/runtime/value_hash.h"

namespace remat::detail {
namespace {

// Inference tensors have no version; autograd refuses to save them anyway.
int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<int64_t>(tensor._version());
}

std::string describe(at::ScalarType dtype, at::IntArrayRef sizes,
                     at::Device device) {
  return remat::str(c10::toString(dtype), sizes, " on ", device.str());
}

// What the recomputed graph itself saves. It dies with the recomputation, and
// gives values back only to a backward inside the region.
class RecomputedHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit RecomputedHooks(std::shared_ptr<Recomputation> recomputation)
      : recomputation_(std::move(recomputation)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    const OperatorScope unseen(nullptr);
    // Undetached it would be a cycle: the tensor owns the node that owns this.
    tensor_ = tensor.detach();
    recomputation_->receive(tensor);
  }

  at::Tensor call_unpack_hook() override { return tensor_; }

 private:
  std::shared_ptr<Recomputation> recomputation_;
  at::Tensor tensor_;
};

// Sets the generators to the forward's state; puts back at scope end what a
// recomputation changes in its thread.
class ThreadStateGuard {
 public:
  explicit ThreadStateGuard(const std::optional<RandomState>& random) {
    if (random.has_value()) {
      random_ = random->now();
      random->restore_from(*random_);
    }
  }
  ~ThreadStateGuard() {
    autocast_.restore();
    if (random_.has_value()) {
      random_->restore();
    }
  }
  ThreadStateGuard(const ThreadStateGuard&) = delete;
  ThreadStateGuard& operator=(const ThreadStateGuard&) = delete;

 private:
  AutocastState autocast_;
  std::optional<RandomState> random_;
};

// What lies outside the region and is its state: as it was in the forward, and
// at scope end as it was found.
class StateReplay {
 public:
  StateReplay() = default;

  // From the last to the first, so that of several of one value the first,
  // taken when the forward began, is what stays. What was set is put back also
  // where a later one throws.
  void set(const std::vector<ReplayState>& states) {
    for (auto replay = states.rbegin(); replay != states.rend(); ++replay) {
      restores_.push_back((*replay)());
    }
  }
  ~StateReplay() {
    for (auto restore = restores_.rbegin(); restore != restores_.rend();
         ++restore) {
      (*restore)();
    }
  }
  StateReplay(const StateReplay&) = delete;
  StateReplay& operator=(const StateReplay&) = delete;

 private:
  std::vector<RestoreState> restores_;
};

// Tells the user of a recomputation's beginning and end.
class Notice {
 public:
  explicit Notice(const CheckpointOptions& options)
      : end_(options.recompute_end_) {
    if (options.recompute_begin_) {
      options.recompute_begin_();
    }
  }
  ~Notice() {
    if (end_) {
      end_();
    }
  }
  Notice(const Notice&) = delete;
  Notice& operator=(const Notice&) = delete;

 private:
  const std::function<void()>& end_;
};

}  // namespace

Recomputation::Recomputation(Region& region, Region::Values& values)
    : region_(region),
      values_(values),
      backward_(current_backward_pass()),
      needed_(region.slots_.size()) {
  values_.resize(region.slots_.size());
  while (needed_ > 0 && !region.slots_[needed_ - 1].alive) {
    --needed_;
  }
}

std::unique_ptr<torch::autograd::SavedVariableHooks>
Recomputation::make_hooks() {
  return std::make_unique<RecomputedHooks>(shared_from_this());
}

void Recomputation::run(std::vector<at::Tensor> inputs) {
  const MemoryScope memory(MemoryTag::kActivations);
  std::optional<ResultReplay> replay;
  if (region_.kept_.has_value()) {
    replay.emplace(*region_.kept_, region_.title());
  }
  const ThreadStateGuard outer_state(region_.random_state_);
  const ProcessSettingsScope settings(region_.settings_);
  AutocastState autocast = region_.autocast_state_;
  autocast.disable_cache();
  autocast.restore();
  RecomputeContext context = region_.context_;
  context.recomputing = true;
  const ContextGuard context_guard(context);
  const c10::AutoGradMode with_grad(true);
  const NoEnclosingRegion no_enclosing;
  StateReplay state;
  state.set(region_.states_);
  const Notice notice(region_.options_);
  const HookStackSwap hooks(shared_from_this());
  OperatorInterceptor* interceptor = replay.has_value() ? &*replay : nullptr;
  std::optional<OperatorLog> log;
  if (region_.options_.debug_) {
    interceptor = &log.emplace(operators_, interceptor);
  }
  const OperatorScope operators(interceptor);
  run_function(std::move(inputs));
  check_count();
  check_differences();
}

void Recomputation::check_differences() const {
  if (differences_.empty()) {
    return;
  }
  std::string text = " saved other tensors when it was recomputed:";
  for (const std::string& difference : differences_) {
    text += "\n  " + difference;
  }
  fail(text +
       "\nA region must compute the same again: no state from outside that "
       "changes, no random numbers but ATen's and remat's.");
}

void Recomputation::fail(const std::string& text) const {
  throw CheckpointError(remat::str(
      "[checkpoint] ", region_.title(), text, "\n",
      region_.options_.debug_
          ? first_difference(region_.operators_, operators_)
          : "CheckpointOptions::debug(true) names the first operator that "
            "differs."));
}

void Recomputation::run_function(std::vector<at::Tensor> inputs) {
  try {
    region_.function_->recompute(std::move(inputs));
  } catch (const StopRecomputation& stop) {
    if (stop.recomputation != this) {
      throw;
    }
  }
}

void Recomputation::receive(const at::Tensor& tensor) {
  // An exception cannot leave a backward that runs inside the region: the
  // engine would lose its place. The stop then waits for its end.
  const bool inside = current_backward_pass() != backward_;
  ran_backward_inside_ |= inside;
  if (stopped_) {
    if (!inside) {
      throw StopRecomputation{this};
    }
    return;
  }
  const size_t index = received_++;
  if (index < region_.slots_.size()) {
    const Region::Slot& slot = region_.slots_[index];
    compare(slot, tensor, index);
    if (slot.alive) {
      values_[index] = {};
      // A buffer's own memory gets its later values back when this ends.
      values_[index].tensor =
          region_.is_buffer(tensor) ? tensor.detach().clone() : tensor.detach();
      values_[index].version = version_of(values_[index].tensor);
    }
  }
  if (region_.options_.early_stop_ && received_ >= needed_) {
    stopped_ = true;
    if (!inside) {
      throw StopRecomputation{this};
    }
  }
}

void Recomputation::compare(const Region::Slot& slot, const at::Tensor& tensor,
                            size_t index) {
  if (region_.options_.determinism_check_ == DeterminismCheck::kNone) {
    return;
  }
  if (slot.dtype != tensor.scalar_type() || slot.device != tensor.device() ||
      tensor.sizes() != at::IntArrayRef(slot.sizes)) {
    differences_.push_back(remat::str(
        "tensor ", index, ": ", describe(slot.dtype, slot.sizes, slot.device),
        " in forward, ",
        describe(tensor.scalar_type(), tensor.sizes(), tensor.device()),
        " recomputed"));
    return;
  }
  if (slot.storage.has_value() && tensor.has_storage() &&
      !region_.is_buffer(tensor) && slot.version != version_of(tensor)) {
    const auto storage = slot.storage->lock();
    if (storage && storage.get() == tensor.storage().unsafeGetStorageImpl()) {
      differences_.push_back(remat::str(
          "tensor ", index, ", ", describe(slot.dtype, slot.sizes, slot.device),
          ", comes from outside the region and was changed in place since "
          "its forward: version ",
          slot.version, " then, ", version_of(tensor), " now"));
      return;
    }
  }
  if (slot.hash.has_value() && slot.hash != value_hash(tensor)) {
    differences_.push_back(remat::str(
        "tensor ", index, ", ", describe(slot.dtype, slot.sizes, slot.device),
        ": other values than in forward"));
  }
}

void Recomputation::check_count() const {
  const size_t saved = region_.slots_.size();
  if (received_ < needed_) {
    fail(remat::str(" saved ", received_, " tensors when it was recomputed, ",
                    saved,
                    " in forward. A region must compute the same again."));
  }
  // With early stop the rest was not run; a backward inside saves more of its
  // own.
  if (!region_.options_.early_stop_ && region_.forward_ended_ &&
      !ran_backward_inside_ && received_ > saved) {
    fail(remat::str(" saved ", received_,
                    " tensors when it was recomputed, only ", saved,
                    " in forward. A region must compute the same again."));
  }
}

}  // namespace remat::detail
