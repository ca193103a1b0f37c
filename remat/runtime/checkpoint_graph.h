// Checkpointing of any computation, not only chains: the values that are not
// held are computed again operator by operator, from a record of the forward.
//
//   auto y = remat::checkpoint_graph(remat::policy::names({"h2", "h5"}), fn,
//   x);
//
//   const remat::GraphPlan plan = remat::plan_graph(fn, x);
//   auto y = remat::checkpoint_graph(plan, fn, x);
//
// After OpenAI's gradient-checkpointing (Salimans and Bulatov, 2018), which
// rewrites a static graph: its collection of tensors is policy::names(), its
// mode "speed" policy::matmuls(), its mode "memory" plan_graph().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "remat/runtime/checkpoint.h"
#include "remat/runtime/graph_plan.h"
#include "remat/runtime/policy.h"

namespace remat {
namespace detail {

// While it lives, this thread's operators and saved tensors are recorded.
class GraphScope {
 public:
  explicit GraphScope(const Policy& policy);
  explicit GraphScope(const GraphPlan& plan);
  struct ForPlanning {};
  explicit GraphScope(ForPlanning);
  ~GraphScope();
  GraphScope(const GraphScope&) = delete;
  GraphScope& operator=(const GraphScope&) = delete;

  // When the function has returned.
  void forward_ended();
  // Of a scope for planning, while what the function returned lives.
  GraphPlan plan(std::optional<int64_t> budget_bytes) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Throws UsageError for a negative one.
void check_budget(int64_t budget_bytes);

template <class Fn, class... Inputs>
GraphPlan record_and_plan(std::optional<int64_t> budget_bytes, Fn&& fn,
                          Inputs&&... inputs) {
  std::tuple<std::decay_t<Inputs>...> arguments(
      std::forward<Inputs>(inputs)...);
  GraphScope scope{GraphScope::ForPlanning()};
  // The graph must live until the plan is made.
  [[maybe_unused]] const auto result = std::apply(fn, arguments);
  return scope.plan(budget_bytes);
}

}  // namespace detail

// Runs fn(inputs...), once, and returns what it returns. Of what autograd would
// save in it only what `keep` says is held, and what cannot be computed again;
// backward computes the rest from that, each operator once a backward. Values
// that depend on each other with no held value in between are computed
// together, when the first of them is needed; a held value between them makes
// them two parts, of which only one is in memory at a time.
//
// keep: a Policy, or a GraphPlan of the same function. fn is not run again: it
// need not live on, may change its inputs and state, and runs its side effects
// once. In exchange, what is no ATen operator, or not the same twice, cannot be
// computed again and is held: results of random operators, new memory
// (at::empty) and what is written into it, values from regions inside fn,
// sparse and quantized tensors. Not seen at all: operators in other threads,
// and memory that a kernel changes without an operator after an operator has
// made it. With gradients off it is a plain call.
//
// Throws CheckpointError where a GraphPlan meets other operators than it was
// made for; in backward as autograd does where a held value was changed in
// place.
template <class Keep, class Fn, class... Inputs>
requires std::is_same_v<Keep, Policy> || std::is_same_v<Keep, GraphPlan>
    detail::RegionResult<Fn, Inputs...> checkpoint_graph(const Keep& keep,
                                                         Fn&& fn,
                                                         Inputs&&... inputs) {
  std::tuple<std::decay_t<Inputs>...> arguments(
      std::forward<Inputs>(inputs)...);
  if (!detail::regions_are_needed()) {
    return std::apply(fn, arguments);
  }
  detail::GraphScope scope(keep);
  detail::RegionResult<Fn, Inputs...> result = std::apply(fn, arguments);
  scope.forward_ended();
  return result;
}

// Runs fn(inputs...) once to record it, with gradients on and nothing saved,
// and plans which values to hold so that held and recomputed ones take the
// least memory together. Holds for inputs of the same kind; run it again when
// shapes change much. fn draws its random numbers and changes its state as in
// any run.
template <class Fn, class... Inputs>
GraphPlan plan_graph(Fn&& fn, Inputs&&... inputs) {
  return detail::record_and_plan(std::nullopt, std::forward<Fn>(fn),
                                 std::forward<Inputs>(inputs)...);
}

// The same, but with the least to compute again that keeps held and recomputed
// values within budget_bytes at any time. A smaller budget never gives a higher
// peak; where none is small enough GraphPlan::fits is false, and the plan is
// that of plan_graph(). Throws UsageError for a negative budget.
template <class Fn, class... Inputs>
GraphPlan plan_graph_within(int64_t budget_bytes, Fn&& fn, Inputs&&... inputs) {
  detail::check_budget(budget_bytes);
  return detail::record_and_plan(budget_bytes, std::forward<Fn>(fn),
                                 std::forward<Inputs>(inputs)...);
}

}  // namespace remat
