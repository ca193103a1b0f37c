// A drop-in container of layers that recompute: torch's own, with a plan.
//
//   using Stack = torch::nn::ModuleHolder<
//       remat::LayerStack<torch::nn::SequentialImpl>>;
//   Stack stack(Block(512), Block(512), Block(512));
//   stack->plan = remat::LayerPlan::square_root();
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "remat/runtime/checkpoint.h"
#include "remat/runtime/layer_selection.h"
#include "remat/runtime/plan_executor.h"
#include "remat/runtime/sequential.h"

namespace remat {

// How the layers of a stack are grouped into regions.
class LayerPlan {
 public:
  enum class Kind { kPlain, kEveryNth, kListed, kSegments, kNested, kPlanned };

  // No regions.
  static LayerPlan plain() { return LayerPlan(Kind::kPlain); }
  // Each n-th layer, from the first on, is a region (every_nth_layer()).
  static LayerPlan every_nth(int64_t n) { return {Kind::kEveryNth, n, {}}; }
  // These layers are (listed_layers()).
  static LayerPlan listed(std::vector<int64_t> indices) {
    return {Kind::kListed, 0, std::move(indices)};
  }
  // So many runs of layers, the last plain (checkpoint_sequential()).
  static LayerPlan segments(int64_t count) {
    return {Kind::kSegments, count, {}};
  }
  // As many segments as their layers, about.
  static LayerPlan square_root() { return {Kind::kSegments, 0, {}}; }
  // By halves (checkpoint_nested()).
  static LayerPlan nested() { return LayerPlan(Kind::kNested); }
  // As a plan of the planner says, a stage a layer (run_plan()). Throws
  // UsageError where its schedule is none of nested regions.
  static LayerPlan planned(const plan::Schedule& schedule) {
    LayerPlan result(Kind::kPlanned);
    result.regions_ =
        std::make_shared<const plan::RegionPlan>(plan::region_plan(schedule));
    return result;
  }

  Kind kind() const { return kind_; }
  int64_t count() const { return count_; }
  const std::vector<int64_t>& indices() const { return indices_; }
  const std::shared_ptr<const plan::RegionPlan>& regions() const {
    return regions_;
  }

 private:
  LayerPlan(Kind kind, int64_t count = 0, std::vector<int64_t> indices = {})
      : kind_(kind), count_(count), indices_(std::move(indices)) {}

  Kind kind_;
  int64_t count_;
  std::vector<int64_t> indices_;
  std::shared_ptr<const plan::RegionPlan> regions_;
};

namespace detail {

// The layers as stages of a plan; copied, which for torch's modules are
// handles.
template <class Layers>
std::vector<PlanStage> stages_of(const Layers& layers) {
  const auto list = layer_list(layers);
  using Run = LayerRun<typename std::decay_t<decltype(list)>::value_type>;
  std::vector<PlanStage> stages;
  for (int64_t i = 0; i < static_cast<int64_t>(list.size()); ++i) {
    const Run run(list, i, i + 1);
    stages.push_back({run, run.buffers()});
  }
  return stages;
}

}  // namespace detail

// Runs the layers one after the other as the plan says. Without layers returns
// x. Throws UsageError where the plan does not fit them.
template <class Layers>
at::Tensor run_layers(const LayerPlan& plan, const CheckpointOptions& options,
                      const Layers& layers, const at::Tensor& x) {
  const auto count =
      static_cast<int64_t>(std::distance(std::begin(layers), std::end(layers)));
  if (count == 0) {
    return x;
  }
  switch (plan.kind()) {
    case LayerPlan::Kind::kEveryNth:
      return checkpoint_layers(options, layers,
                               every_nth_layer(count, plan.count()), x);
    case LayerPlan::Kind::kListed:
      return checkpoint_layers(options, layers,
                               listed_layers(count, plan.indices()), x);
    case LayerPlan::Kind::kSegments:
      return checkpoint_sequential(
          options, layers,
          plan.count() > 0 ? plan.count() : square_root_segments(count), x);
    case LayerPlan::Kind::kNested:
      return checkpoint_nested(options, layers, x);
    case LayerPlan::Kind::kPlanned:
      return run_plan(plan.regions(), detail::stages_of(layers), options, x);
    case LayerPlan::Kind::kPlain:
      break;
  }
  return checkpoint_layers(
      options, layers, std::vector<bool>(static_cast<size_t>(count), false), x);
}

// torch::nn::SequentialImpl with layers from tensor to tensor. Names of
// parameters and submodules are unchanged: what was saved from one loads into
// the other. forward(x) runs the layers by `plan`, which may change from step
// to step.
template <class Container>
class LayerStack : public Container {
 public:
  using Container::Container;

  at::Tensor forward(const at::Tensor& x) {
    return run_layers(plan, options, *this, x);
  }

  LayerPlan plan = LayerPlan::every_nth(1);
  CheckpointOptions options;
};

}  // namespace remat
