// A model in a memory that is named: profiled, planned, its plan set.
//
//   remat::MemoryPlan plan = remat::fit_memory(*stack, sample, 2LL << 30);
//   std::cout << plan.explain();
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "remat/profile/memory_plan.h"
#include "remat/profile/profile_stages.h"
#include "remat/runtime/layer_stack.h"
#include "remat/runtime/plan_executor.h"

namespace remat {

struct FitOptions {
  // What the optimizer will hold that is not there yet, as a multiple of the
  // parameters' bytes: 2 for Adam's moments.
  double optimizer_share = 2;
  // Gradients are dropped after each step (set_to_none), rather than zeroed.
  bool gradients_are_new = false;
  ProfileOptions profile;
};

// Of a process with a model whose parameters these are: what it holds now, and
// gradients and optimizer state to come. Gives cached memory back first.
MemoryParts measure_memory_parts(const std::vector<at::Tensor>& parameters,
                                 double optimizer_share = 2);

// Under install_cpu_allocator(): from now on the process holds no more than the
// budget, or a tensor throws BudgetError. What is outside of that allocator's
// memory now and slack_bytes count as used; more than that as it comes. Without
// the allocator does nothing.
void hold_memory(int64_t budget_bytes, int64_t slack_bytes);

// A plan for stages on a batch as large as x: with it the process holds no more
// than budget_bytes, everything included, on the CPU. Profiles the stages, some
// ten passes; x and what else the caller has alive counts. Where
// install_cpu_allocator() was called the budget is held from now on
// (hold_memory()); otherwise the C library may keep more than the plan counts.
//
// parameters: all of the model, the stages' and others. Throws NoPlanError with
// the least budget that would do.
MemoryPlan fit_memory(const std::vector<PlanStage>& stages, const at::Tensor& x,
                      const std::vector<at::Tensor>& parameters,
                      int64_t budget_bytes, const FitOptions& options = {});

// The same for a LayerStack of layers from tensor to tensor, whose plan it
// sets; x: its input. Where the stack is only a part of the model, `others` are
// the other parameters.
template <class Container>
MemoryPlan fit_memory(LayerStack<Container>& stack, const at::Tensor& x,
                      int64_t budget_bytes, const FitOptions& options = {},
                      const std::vector<at::Tensor>& others = {}) {
  std::vector<at::Tensor> parameters = stack.parameters();
  parameters.insert(parameters.end(), others.begin(), others.end());
  MemoryPlan plan = fit_memory(detail::stages_of(stack), x, parameters,
                               budget_bytes, options);
  stack.plan = LayerPlan::planned(plan.plan.schedule);
  return plan;
}

}  // namespace remat
