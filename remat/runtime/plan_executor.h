// Runs stages by a plan of the planner: as nested regions, each of which is
// recomputed as the plan says when backward reaches it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "remat/plan/region_plan.h"
#include "remat/runtime/checkpoint.h"

namespace remat {

// One stage of a model, from tensor to tensor. It is called once in forward and
// as often again in backward as the plan says, also after the call that it was
// given to has returned. Other tensors that it reads (weights, a mask) it
// captures; they get gradients as without a plan.
struct PlanStage {
  std::function<at::Tensor(const at::Tensor&)> forward;
  // What it changes in place besides: CheckpointOptions::buffers().
  std::vector<at::Tensor> buffers = {};
  // For tables of time and memory: what it computes is this part's.
  std::string name = {};
};

// The same from tensors to tensors. What several later stages read, as a
// decoder's layers read the encoder's output, each stage passes on unchanged:
//   {h, encoded} -> {layer(h, encoded), encoded}
struct ListStage {
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>
      forward;
  std::vector<at::Tensor> buffers = {};
  std::string name = {};
};

std::vector<ListStage> list_stages(std::vector<PlanStage> stages);

// Runs the stages one after the other on x. Gradients are those of the plain
// run, to the bit; with gradients off it is the plain run. The options are
// those of every region. A value whose plan says that it waits in a store is
// moved to host memory.
//
// Throws UsageError where the plan is for another number of stages, has a stage
// run in another way than as it is (RegionStep::way), or moves the input of a
// stage that runs with saving.
at::Tensor run_plan(std::shared_ptr<const plan::RegionPlan> plan,
                    std::vector<PlanStage> stages,
                    const CheckpointOptions& options, const at::Tensor& x);
std::vector<at::Tensor> run_plan(std::shared_ptr<const plan::RegionPlan> plan,
                                 std::vector<ListStage> stages,
                                 const CheckpointOptions& options,
                                 std::vector<at::Tensor> x);

}  // namespace remat
