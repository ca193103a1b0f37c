#include "remat/runtime/plan_executor.h"

#include <optional>
#include <utility>

#include "remat/base/error.h"
#include "remat/memory/owner.h"
#include "remat/runtime/save_on_cpu.h"
#include "remat/runtime/unpinned_input.h"

namespace remat {
namespace {

using plan::RegionStep;
using Tensors = std::vector<at::Tensor>;

class Execution : public std::enable_shared_from_this<Execution> {
 public:
  Execution(std::shared_ptr<const plan::RegionPlan> plan,
            std::vector<ListStage> stages, CheckpointOptions options)
      : plan_(std::move(plan)),
        stages_(std::move(stages)),
        options_(std::move(options)) {
    if (plan_->stages != static_cast<int>(stages_.size())) {
      fail_usage("run_plan", "the plan is for ", plan_->stages,
                 " stages; there are ", stages_.size());
    }
    check(plan_->steps);
  }

  Tensors run(Tensors x) { return run(plan_->steps, std::move(x)); }

  Tensors run_plain(Tensors x) const {
    for (size_t i = 0; i < stages_.size(); ++i) {
      x = forward(static_cast<int>(i), x);
    }
    return x;
  }

 private:
  Tensors forward(int index, const Tensors& x) const {
    const ListStage& stage = stages_[static_cast<size_t>(index)];
    const MemoryScope memory(MemoryTag::kActivations, stage.name);
    return stage.forward(x);
  }

  void check(const std::vector<RegionStep>& steps) const {
    for (const RegionStep& step : steps) {
      if (step.way != 0) {
        fail_usage("run_plan", "the plan saves stage ", step.end - 1,
                   " in way ", step.way,
                   "; only stages as they are (way 0) can be run");
      }
      if (step.kind == RegionStep::Kind::kSave && step.store >= 0) {
        fail_usage("run_plan", "the plan saves stage ", step.begin,
                   " and moves its input to store ", step.store,
                   "; only inputs of regions can be moved");
      }
      check(step.inside);
    }
  }

  Tensors run(const std::vector<RegionStep>& steps, Tensors x) {
    for (const RegionStep& step : steps) {
      switch (step.kind) {
        case RegionStep::Kind::kSave:
          x = forward(step.begin, x);
          break;
        case RegionStep::Kind::kRegion:
          x = region(step, step.end, nullptr, std::move(x));
          break;
        case RegionStep::Kind::kRegionThenSave:
          x = region_then_save(step, std::move(x));
          break;
      }
    }
    return x;
  }

  Tensors region_then_save(const RegionStep& step, Tensors x) {
    // Filled by the region's forward. The outputs' owner is the graph after the
    // region, which owns the region: not the other way round as well.
    const auto inputs = std::make_shared<detail::UnpinnedInputs>();
    x = region(step, step.end - 1, inputs, std::move(x));
    const detail::HookScope hooks(
        std::make_shared<detail::UnpinnedInputHandler>(*inputs));
    return forward(step.end - 1, x);
  }

  Tensors region(const RegionStep& step, int end,
                 const std::shared_ptr<detail::UnpinnedInputs>& outputs,
                 Tensors x) {
    CheckpointOptions options = options_;
    for (int stage = step.begin; stage < end; ++stage) {
      const auto& buffers = stages_[static_cast<size_t>(stage)].buffers;
      options.buffers_.insert(options.buffers_.end(), buffers.begin(),
                              buffers.end());
    }
    const auto function =
        [self = shared_from_this(), &step, is_noted = outputs != nullptr,
         outputs = std::weak_ptr(outputs)](const Tensors& input) {
          Tensors y = self->run(step.inside, input);
          if (is_noted) {
            detail::note_outputs(outputs.lock().get(), y, input);
          }
          return y;
        };
    std::optional<SaveOnCpu> store;
    if (step.store >= 0) {
      store.emplace();
    }
    return checkpoint(options, function, std::move(x));
  }

  const std::shared_ptr<const plan::RegionPlan> plan_;
  const std::vector<ListStage> stages_;
  const CheckpointOptions options_;
};

}  // namespace

std::vector<ListStage> list_stages(std::vector<PlanStage> stages) {
  std::vector<ListStage> lists;
  for (PlanStage& stage : stages) {
    lists.push_back(
        {.forward =
             [forward = std::move(stage.forward)](const Tensors& x) {
               return Tensors{forward(x.front())};
             },
         .buffers = std::move(stage.buffers),
         .name = std::move(stage.name)});
  }
  return lists;
}

std::vector<at::Tensor> run_plan(std::shared_ptr<const plan::RegionPlan> plan,
                                 std::vector<ListStage> stages,
                                 const CheckpointOptions& options,
                                 std::vector<at::Tensor> x) {
  const auto execution =
      std::make_shared<Execution>(std::move(plan), std::move(stages), options);
  return detail::regions_are_needed() ? execution->run(std::move(x))
                                      : execution->run_plain(std::move(x));
}

at::Tensor run_plan(std::shared_ptr<const plan::RegionPlan> plan,
                    std::vector<PlanStage> stages,
                    const CheckpointOptions& options, const at::Tensor& x) {
  return run_plan(std::move(plan), list_stages(std::move(stages)), options,
                  Tensors{x})
      .front();
}

}  // namespace remat
