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

[[noreturn]] void refuse_plan(const std::string& difference) {
  throw CheckpointError("[checkpoint_graph] " + difference +
                        ". Plan anew: plan_graph(fn, inputs).");
}

OperatorTape::Choice choice_of(const std::shared_ptr<const GraphPlan>& plan) {
  OperatorTape::Choice choice;
  choice.check = [plan](size_t number, const c10::OperatorHandle& op) {
    const std::string name = operator_name(op);
    if (number >= plan->operators.size()) {
      refuse_plan(remat::str("operator ", number, " is ", name,
                             "; the plan was made for one of ",
                             plan->operators.size(), " operators"));
    }
    if (plan->operators[number] != name) {
      refuse_plan(remat::str("operator ", number, " is ", name,
                             "; the plan was made for a function that runs ",
                             plan->operators[number], " there"));
    }
  };
  choice.keeps = [plan](size_t number, const c10::OperatorHandle&,
                        const OperatorCall&) {
    return static_cast<bool>(plan->held[number]);
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
  std::shared_ptr<const GraphPlan> plan;
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
  if (plan.held.size() != plan.operators.size()) {
    fail_usage("checkpoint_graph", "the plan has ", plan.operators.size(),
               " operators and says of ", plan.held.size(),
               " whether they are held; both must be of one plan_graph()");
  }
  install_engine();
  const auto shared = std::make_shared<const GraphPlan>(plan);
  state_ = std::make_unique<State>(choice_of(shared), false);
  state_->plan = shared;
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
  const size_t run = state_->region->tape().operators_run();
  if (state_->plan != nullptr && run != state_->plan->operators.size()) {
    refuse_plan(remat::str("the function ran ", run,
                           " operators; the plan was made for one of ",
                           state_->plan->operators.size(), " operators"));
  }
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
