#include "remat/runtime/checkpoint_graph.h"

#include <c10/core/GradMode.h>

#include <optional>
#include <string>
#include <vector>

#include "remat/base/error.h"
#include "remat/runtime/engine.h"
#include "remat/runtime/graph_region.h"
#include "remat/runtime/hook_stack.h"
#include "remat/runtime/operator_log.h"
#include "remat/runtime/operator_scope.h"
#include "remat/runtime/operator_traits.h"
#include "remat/runtime/slot_hooks.h"

namespace remat::detail {
namespace {

OperatorTape::Choice choice_of(const Policy& policy) {
  OperatorTape::Choice choice;
  choice.names = policy.names;
  if (policy.keeps) {
    choice.keeps = [keeps = policy.keeps](size_t, const c10::OperatorHandle& op,
                                          const OperatorCall& call) {
      return computes_new_tensors(op) && keeps(call);
    };
  }
  return choice;
}

OperatorTape::Choice choice_of(const GraphPlan& plan) {
  OperatorTape::Choice choice;
  choice.keeps = [plan](size_t number, const c10::OperatorHandle& op,
                        const OperatorCall&) {
    const std::string name = operator_name(op);
    if (number >= plan.operators.size() || plan.operators[number] != name) {
      throw CheckpointError(remat::str(
          "[checkpoint_graph] operator ", number, " is ", name,
          "; the plan was made for ",
          number < plan.operators.size()
              ? "a function that runs " + plan.operators[number] + " there"
              : remat::str("one of ", plan.operators.size(), " operators"),
          ". Plan anew: plan_graph(fn, inputs)."));
    }
    return plan.held[number] != 0;
  };
  return choice;
}

}  // namespace

struct GraphScope::State {
  explicit State(OperatorTape::Choice choice, bool planning)
      : region(std::make_shared<GraphRegion>(std::move(choice))),
        hooks(std::in_place,
              std::make_shared<SlotHandler<GraphRegion>>(region)) {
    OperatorInterceptor* interceptor = &region->tape();
    if (planning) {
      with_grad.emplace(true);
      interceptor = &log.emplace(names, interceptor);
    }
    operators.emplace(interceptor);
  }

  std::shared_ptr<GraphRegion> region;
  std::optional<c10::AutoGradMode> with_grad;
  std::vector<std::string> names;
  std::optional<OperatorLog> log;
  std::optional<HookScope> hooks;
  std::optional<ForwardOperatorScope> operators;
};

GraphScope::GraphScope(const Policy& policy) {
  install_engine();
  state_ = std::make_unique<State>(choice_of(policy), false);
}

GraphScope::GraphScope(const GraphPlan& plan) {
  install_engine();
  state_ = std::make_unique<State>(choice_of(plan), false);
}

GraphScope::GraphScope(ForPlanning) {
  install_engine();
  OperatorTape::Choice choice;
  choice.hold = false;
  state_ = std::make_unique<State>(std::move(choice), true);
}

GraphScope::~GraphScope() { state_->region->tape().drop_running(); }

void GraphScope::forward_ended() {
  state_->operators.reset();
  state_->hooks.reset();
  state_->region->forward_ended();
}

GraphPlan GraphScope::plan(std::optional<int64_t> budget_bytes) const {
  return plan_of_tape(state_->region->tape(), state_->region->saved_values(),
                      state_->names, budget_bytes);
}

void check_budget(int64_t budget_bytes) {
  if (budget_bytes < 0) {
    fail_usage("plan_graph", "budget_bytes is ", budget_bytes,
               "; it must be 0 or more");
  }
}

}  // namespace remat::detail
