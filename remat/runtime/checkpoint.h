// Activation checkpointing for any libtorch model: the inner values of a region
// are dropped after forward and computed again in backward.
//
//   auto y = remat::checkpoint(
//       [&](const at::Tensor& x) { return block->forward(x, mask); }, x);
//
// Chen, Xu, Zhang, Guestrin: Training Deep Nets with Sublinear Memory Cost
// (2016). Built on saved-tensor hooks: no inner backward, so grad() with given
// inputs, double backward, retain_graph and several losses work as without.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/runtime/policy.h"
#include "remat/runtime/recompute_context.h"
#include "remat/runtime/region_state.h"
#include "remat/runtime/visit_tensors.h"

namespace remat {

// How the values of the recomputation are compared with those of the forward.
enum class DeterminismCheck {
  kNone,      // only their count
  kMetadata,  // count, shape, dtype and device of each
  kValues,    // a hash of every value too: each costs a pass over the tensor,
              // in forward and again in backward. For looking for errors.
};

// The recomputation of a region did not repeat its forward: another number of
// saved tensors, or tensors of another shape, dtype, device or value. The text
// lists every difference with its position.
class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct CheckpointOptions {
  // Replay ATen's random generators (of the CPU and of every device that holds
  // an input) in the recomputation, and put them back after it. Costs a copy
  // of 5 KB on the CPU, which regions share between which nothing was drawn.
  // Off: torch::dropout and the like draw anew, and gradients are wrong where
  // the region calls them; remat::Dropout is still replayed. Default true.
  CheckpointOptions& preserve_rng_state(bool on);

  // Default kMetadata.
  CheckpointOptions& determinism_check(DeterminismCheck check);

  // Replay these generators too: for a region that draws from generators of its
  // own. Whatever preserve_rng_state() is. Default none.
  CheckpointOptions& generators(const std::vector<at::Generator>& generators);

  // Tensors that the region changes in place besides what it returns, such as
  // running statistics: the recomputation finds them as the forward did, and
  // leaves them as it found them, so that they change once. Copied in each
  // forward. A module's own need not be named where the module is the function:
  // checkpoint(batch_norm, x). Default none.
  CheckpointOptions& buffers(std::vector<at::Tensor> tensors);

  // For a module as the function: treat its buffers() so. Default true.
  CheckpointOptions& module_buffers(bool on);

  // The same for any other copyable value that the region changes: a counter, a
  // cache of tensors. Tensors in it are copied as handles; name those whose
  // values change in buffers(). The value must outlive the region's graph.
  template <class T>
  CheckpointOptions& state(T& value) {
    static_assert(!std::is_base_of_v<at::Tensor, T>,
                  "a tensor's values are kept by buffers({tensor})");
    states_.push_back(detail::value_state(value));
    return *this;
  }

  // Keep some results of the forward, which are then not computed again; see
  // policy.h. Default: none.
  CheckpointOptions& policy(Policy policy);

  // Let the region change its inputs in place: it keeps copies of them, which
  // take memory, and recomputes from those. Default false: it is an error.
  CheckpointOptions& clone_inputs(bool on);

  // Called when a recomputation begins and when it ends, also when it stops
  // early or fails. Default none.
  CheckpointOptions& on_recompute(std::function<void()> begin,
                                  std::function<void()> end);

  // Stop the recomputation as soon as the last value that backward can ask for
  // is there. Side effects after that point do not happen again. An
  // EarlyStopScope around the call wins. Default true.
  CheckpointOptions& early_stop(bool on);

  // Opens a SeedScope of this seed around the region. Default: none, so that
  // masks are the ones that the plain run would draw.
  CheckpointOptions& seed(uint64_t seed);

  // Note the operators of both runs, so that an error names the first that
  // differs. Slow. Default false.
  CheckpointOptions& debug(bool on);

  // Stands in errors: "layer 3". Default empty.
  CheckpointOptions& name(std::string name);

  bool preserve_rng_state_ = true;
  DeterminismCheck determinism_check_ = DeterminismCheck::kMetadata;
  bool early_stop_ = true;
  bool module_buffers_ = true;
  bool clone_inputs_ = false;
  bool debug_ = false;
  std::optional<uint64_t> seed_;
  std::optional<Policy> policy_;
  std::string name_;
  std::vector<at::Tensor> buffers_;
  std::vector<detail::SnapshotState> states_;
  std::function<void()> recompute_begin_;
  std::function<void()> recompute_end_;
};

// While it lives, regions whose forward begins in this thread stop early, or do
// not, whatever their options say. Scopes nest; the innermost counts.
class EarlyStopScope {
 public:
  explicit EarlyStopScope(bool on);
  ~EarlyStopScope();
  EarlyStopScope(const EarlyStopScope&) = delete;
  EarlyStopScope& operator=(const EarlyStopScope&) = delete;

 private:
  std::optional<bool> outer_;
};

namespace detail {

// A region's function and its arguments, without their tensors.
class RegionFunction {
 public:
  virtual ~RegionFunction() = default;
  // Runs fn once more on these tensors and drops what it returns.
  virtual void recompute(std::vector<at::Tensor> tensors) = 0;
};

// False with gradients off or in inference mode: then nothing is saved.
bool regions_are_needed();

// A function that is a module, or holds one: it has buffers() of its own.
template <class Fn>
CheckpointOptions with_module_buffers(CheckpointOptions options, const Fn& fn) {
  if constexpr (requires { std::vector<at::Tensor>(fn->buffers()); }) {
    if (options.module_buffers_) {
      for (at::Tensor& buffer : fn->buffers()) {
        options.buffers_.push_back(std::move(buffer));
      }
    }
  }
  return options;
}

// What of the options holds without a region: the SeedScope of seed().
class PlainScope {
 public:
  explicit PlainScope(const CheckpointOptions& options);

 private:
  std::optional<SeedScope> seed_scope_;
};

// What checkpoint() returns: by value, since a reference would be one to its
// own copy of an argument.
template <class Fn, class... Inputs>
using RegionResult = std::decay_t<
    std::invoke_result_t<std::decay_t<Fn>&, std::decay_t<Inputs>&...>>;

// While it lives, what autograd saves in this thread belongs to the region.
class RegionScope {
 public:
  RegionScope(const CheckpointOptions& options, bool may_stop,
              std::shared_ptr<RegionFunction> function,
              const std::vector<at::Tensor>& inputs);
  ~RegionScope();

  // Throws CheckpointError if the function changed one of its inputs in place.
  void check_inputs() const;

  RegionScope(const RegionScope&) = delete;
  RegionScope& operator=(const RegionScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

template <class Fn, class... Inputs>
class RegionCall final : public RegionFunction {
 public:
  template <class F, class... I>
  explicit RegionCall(F&& fn, I&&... inputs)
      : fn_(std::forward<F>(fn)), inputs_(std::forward<I>(inputs)...) {}

  // Moves the tensors out of the arguments: from here on only the region's
  // saved inputs hold them.
  std::vector<at::Tensor> take_tensors() {
    std::vector<at::Tensor> tensors;
    for_each_tensor(inputs_, [&](at::Tensor& tensor) {
      tensors.push_back(std::move(tensor));
      tensor = at::Tensor();
    });
    return tensors;
  }

  Fn& fn() { return fn_; }

  void recompute(std::vector<at::Tensor> tensors) override {
    // A copy, so that a second backward finds the arguments as they were.
    std::tuple<Inputs...> inputs = inputs_;
    auto next = tensors.begin();
    for_each_tensor(inputs,
                    [&](at::Tensor& tensor) { tensor = std::move(*next++); });
    tensors.clear();
    static_cast<void>(std::apply(fn_, inputs));
  }

 private:
  Fn fn_;
  std::tuple<Inputs...> inputs_;
};

}  // namespace detail

// Runs fn(inputs...) and returns what it returns. What autograd would save in
// it is dropped; the first backward that needs one of these values runs fn
// again, with the same random numbers and autocast state.
//
// fn: callable; copied or moved into the region and kept until the graph dies,
// so what it captures by reference must live as long. It must compute the same
// again and must not change its inputs. inputs: tensors, std::tuple, pair,
// vector, array, optional or map of them, structs that have visit_tensors (see
// visit_tensors.h), and any copyable values besides. Outputs: anything, by
// value. A frame inside fn that is noexcept and calls operations needs
// early_stop(false); fn itself may be noexcept.
// Tensors that fn captures work too, and get gradients; an input is kept alive,
// and a change of it in place before backward is an error, as in autograd.
//
// Regions nest to any depth. With gradients off it is a plain call. Exceptions
// of fn pass through unchanged, in forward and in backward. Thread-safe in the
// sense that autograd is. Throws CheckpointError in backward.
template <class Fn, class... Inputs>
detail::RegionResult<Fn, Inputs...> checkpoint(const CheckpointOptions& options,
                                               Fn&& fn, Inputs&&... inputs) {
  if (!detail::regions_are_needed()) {
    const detail::PlainScope scope(options);
    std::tuple<std::decay_t<Inputs>...> arguments(
        std::forward<Inputs>(inputs)...);
    return std::apply(fn, arguments);
  }
  std::tuple<std::decay_t<Inputs>...> arguments(inputs...);
  auto call = std::make_shared<
      detail::RegionCall<std::decay_t<Fn>, std::decay_t<Inputs>...>>(
      std::forward<Fn>(fn), std::forward<Inputs>(inputs)...);
  // The stop is an exception, which a noexcept function would end the process
  // with.
  constexpr bool kMayStop =
      !std::is_nothrow_invocable_v<std::decay_t<Fn>&, std::decay_t<Inputs>&...>;
  detail::RegionScope scope(detail::with_module_buffers(options, call->fn()),
                            kMayStop, call, call->take_tensors());
  detail::RegionResult<Fn, Inputs...> result =
      std::apply(call->fn(), arguments);
  scope.check_inputs();
  return result;
}

template <class Fn, class... Inputs,
          class = std::enable_if_t<
              !std::is_same_v<std::decay_t<Fn>, CheckpointOptions>>>
detail::RegionResult<Fn, Inputs...> checkpoint(Fn&& fn, Inputs&&... inputs) {
  return checkpoint(CheckpointOptions(), std::forward<Fn>(fn),
                    std::forward<Inputs>(inputs)...);
}

}  // namespace remat
