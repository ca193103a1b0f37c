#include "remat/profile/profile_stages.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "remat/base/error.h"
#include "remat/profile/stage_profiler.h"
#include "remat/runtime/random_state.h"
#include "remat/runtime/region_state.h"

namespace remat {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int kMostRepetitions = 20;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Puts back what a call of a stage changes.
class RestoredState {
 public:
  RestoredState(const std::vector<ListStage>& stages, const Tensors& x)
      : random_(x) {
    Tensors buffers;
    for (const ListStage& stage : stages) {
      buffers.insert(buffers.end(), stage.buffers.begin(), stage.buffers.end());
    }
    if (!buffers.empty()) {
      buffers_ = detail::tensor_state(std::move(buffers))();
    }
  }
  ~RestoredState() {
    random_.restore();
    if (buffers_) {
      // Set to what they were; what they are now is not put back.
      buffers_();
    }
  }
  RestoredState(const RestoredState&) = delete;
  RestoredState& operator=(const RestoredState&) = delete;

 private:
  const detail::RandomState random_;
  detail::ReplayState buffers_;
};

void check(const std::vector<ListStage>& stages) {
  if (stages.empty()) {
    fail_usage("profile", "there are no stages");
  }
  if (!c10::GradMode::is_enabled()) {
    fail_usage("profile", "gradients are off; a profile measures backward too");
  }
}

Tensors first_inputs(const Tensors& x) {
  Tensors inputs;
  for (const at::Tensor& tensor : x) {
    inputs.push_back(tensor.defined() ? tensor.detach().set_requires_grad(
                                            tensor.requires_grad())
                                      : tensor);
  }
  return inputs;
}

// All stages in turn, as a pass has them: what a stage finds in the caches is
// what a step leaves there. Spread over time, the samples of a stage share no
// disturbance.
void measure_times(std::vector<StageProfiler>& profilers, const Tensors& x,
                   const ProfileOptions& options) {
  double total = 0;
  const double enough =
      options.seconds_per_stage * static_cast<double>(profilers.size());
  for (int i = 0;
       i < kMostRepetitions && (i < options.repetitions || total < enough);
       ++i) {
    Tensors inputs = first_inputs(x);
    for (StageProfiler& profiler : profilers) {
      total += profiler.measure_time(inputs);
    }
  }
}

bool has_same_bytes(const plan::Stage& a, const plan::Stage& b) {
  return a.output_bytes == b.output_bytes && a.saved_bytes == b.saved_bytes &&
         a.forward_workspace_bytes == b.forward_workspace_bytes &&
         a.backward_workspace_bytes == b.backward_workspace_bytes;
}

// Stages that follow each other, have the same bytes and take about the same
// time are taken for equal, as the layers of a transformer are: the medians of
// all their samples are truer than those of each.
void set_times(std::vector<plan::Stage>& stages,
               const std::vector<StageProfiler>& profilers) {
  constexpr double kNoise = 0.25;
  const auto total = [](const plan::Stage& stage) {
    return stage.forward_seconds + stage.backward_seconds;
  };
  for (size_t i = 0; i < stages.size(); ++i) {
    stages[i].forward_seconds = median(profilers[i].forward_seconds());
    stages[i].backward_seconds = median(profilers[i].backward_seconds());
  }
  for (size_t begin = 0; begin < stages.size();) {
    std::vector<double> forward, backward;
    size_t end = begin;
    for (; end < stages.size() && has_same_bytes(stages[begin], stages[end]) &&
           std::abs(total(stages[end]) - total(stages[begin])) <=
               kNoise * total(stages[begin]);
         ++end) {
      const auto& more_forward = profilers[end].forward_seconds();
      const auto& more_backward = profilers[end].backward_seconds();
      forward.insert(forward.end(), more_forward.begin(), more_forward.end());
      backward.insert(backward.end(), more_backward.begin(),
                      more_backward.end());
    }
    const double forward_seconds = median(std::move(forward));
    const double backward_seconds = median(std::move(backward));
    for (; begin < end; ++begin) {
      stages[begin].forward_seconds = forward_seconds;
      stages[begin].backward_seconds = backward_seconds;
    }
  }
}

}  // namespace

Profile profile_stages(const std::vector<ListStage>& stages,
                       const std::vector<at::Tensor>& x,
                       const ProfileOptions& options) {
  check(stages);
  const RestoredState restored(stages, x);
  Profile profile;
  plan::Chain& chain = profile.chain;
  chain.input_bytes = memory_bytes(x);
  std::vector<StageProfiler> profilers;
  Tensors inputs = first_inputs(x);
  for (size_t i = 0; i < stages.size(); ++i) {
    StageProfiler& profiler =
        profilers.emplace_back(stages[i], options.gradients_exist);
    plan::Stage costs;
    costs.name = stages[i].name.empty() ? str("stage ", i) : stages[i].name;
    profiler.warm_up(inputs);
    inputs = profiler.measure_memory(inputs, costs);
    profile.gradient_bytes.push_back(profiler.gradient_bytes());
    profile.shared_bytes =
        std::max(profile.shared_bytes, profiler.shared_bytes());
    chain.stages.push_back(std::move(costs));
  }
  inputs.clear();
  measure_times(profilers, x, options);
  set_times(chain.stages, profilers);
  plan::validate(chain);
  return profile;
}

Profile profile_stages(const std::vector<PlanStage>& stages,
                       const at::Tensor& x, const ProfileOptions& options) {
  return profile_stages(list_stages(stages), Tensors{x}, options);
}

void warm_up_stages(const std::vector<ListStage>& stages,
                    const std::vector<at::Tensor>& x) {
  check(stages);
  const RestoredState restored(stages, x);
  Tensors inputs = first_inputs(x);
  for (const ListStage& stage : stages) {
    inputs = StageProfiler(stage, /*gradients_exist=*/false).warm_up(inputs);
  }
}

void warm_up_stages(const std::vector<PlanStage>& stages, const at::Tensor& x) {
  warm_up_stages(list_stages(stages), Tensors{x});
}

}  // namespace remat
