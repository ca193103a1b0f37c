#include "remat/profile/profile_stages.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "remat/base/error.h"
#include "remat/memory/meter.h"
#include "remat/runtime/random_state.h"
#include "remat/runtime/region_state.h"

namespace remat {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostRepetitions = 20;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

int64_t memory_bytes(const at::Tensor& tensor) {
  return tensor.has_storage() ? static_cast<int64_t>(tensor.storage().nbytes())
                              : static_cast<int64_t>(tensor.nbytes());
}

// The leaves whose gradients a backward from here adds to.
std::vector<at::Tensor> leaves_behind(const at::Tensor& output) {
  std::vector<at::Tensor> leaves;
  std::vector<torch::autograd::Node*> open;
  std::unordered_set<torch::autograd::Node*> seen;
  const auto visit = [&](torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) {
      open.push_back(node);
    }
  };
  visit(output.grad_fn().get());
  while (!open.empty()) {
    torch::autograd::Node* const node = open.back();
    open.pop_back();
    if (auto* const leaf =
            dynamic_cast<torch::autograd::AccumulateGrad*>(node)) {
      leaves.push_back(leaf->variable);
    }
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      visit(edge.function.get());
    }
  }
  return leaves;
}

// Takes the gradients of leaves away and puts them back.
class BorrowedGradients {
 public:
  // Where others are to exist, leaves get one to add to until then.
  BorrowedGradients(const std::vector<at::Tensor>& leaves, bool others_exist)
      : others_exist_(others_exist) {
    for (const at::Tensor& leaf : leaves) {
      own_.emplace_back(leaf, leaf.grad());
      leaf.mutable_grad() = others_exist ? at::zeros_like(leaf) : at::Tensor();
    }
  }
  ~BorrowedGradients() {
    for (const auto& [leaf, gradient] : own_) {
      leaf.mutable_grad() = gradient;
    }
  }
  BorrowedGradients(const BorrowedGradients&) = delete;
  BorrowedGradients& operator=(const BorrowedGradients&) = delete;

  void drop_new() const {
    if (!others_exist_) {
      for (const auto& [leaf, gradient] : own_) {
        leaf.mutable_grad() = at::Tensor();
      }
    }
  }

 private:
  const bool others_exist_;
  std::vector<std::pair<at::Tensor, at::Tensor>> own_;
};

// Puts back what a call of a stage changes.
class RestoredState {
 public:
  RestoredState(const std::vector<PlanStage>& stages, const at::Tensor& x)
      : random_(std::vector<at::Tensor>{x}) {
    std::vector<at::Tensor> buffers;
    for (const PlanStage& stage : stages) {
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

void check(const std::vector<PlanStage>& stages) {
  if (stages.empty()) {
    fail_usage("profile", "there are no stages");
  }
  if (!c10::GradMode::is_enabled()) {
    fail_usage("profile", "gradients are off; a profile measures backward too");
  }
}

// One stage; every call gives the input of the next, without its graph: a leaf
// that requires a gradient if the output did.
class StageProfiler {
 public:
  StageProfiler(const PlanStage& stage, bool gradients_exist)
      : stage_(stage), gradients_exist_(gradients_exist) {}

  // Caches of the stage and of libtorch; and whose gradients it makes.
  at::Tensor warm_up(const at::Tensor& input) {
    const at::Tensor output = stage_.forward(input);
    if (!output.defined()) {
      fail_usage("profile", "a stage returned no tensor");
    }
    has_gradient_ = output.requires_grad();
    if (!has_gradient_) {
      return output;
    }
    for (const at::Tensor& leaf : leaves_behind(output)) {
      if (!leaf.is_same(input)) {
        leaves_.push_back(leaf);
        gradient_bytes_ += memory_bytes(leaf);
      }
    }
    const BorrowedGradients gradients(leaves_, gradients_exist_);
    backward(input, output, at::ones_like(output), gradients);
    return next_input(output);
  }

  at::Tensor measure_memory(const at::Tensor& input, plan::Stage& costs) const {
    const BorrowedGradients gradients(leaves_, gradients_exist_);
    MemoryMeter meter;
    at::Tensor output = stage_.forward(input);
    costs.output_bytes = memory_bytes(output);
    // A stage that returns its input, or a view of it, makes no new memory; a
    // chain cannot say so.
    costs.saved_bytes = std::max(meter.live_bytes(), costs.output_bytes);
    costs.forward_workspace_bytes =
        std::max<int64_t>(meter.peak_bytes() - costs.saved_bytes, 0);
    const at::Tensor next = next_input(output);
    if (has_gradient_) {
      at::Tensor gradient = at::ones_like(output);
      const int64_t counted_elsewhere =
          memory_bytes(gradient) +
          (input.requires_grad() ? memory_bytes(input) : 0) +
          (gradients_exist_ ? 0 : gradient_bytes_);
      meter.reset_peak();
      // Its memory is counted; nothing holds the output but the stage.
      backward(input, std::exchange(output, {}), std::exchange(gradient, {}),
               gradients);
      costs.backward_workspace_bytes = std::max<int64_t>(
          meter.peak_bytes() - costs.saved_bytes - counted_elsewhere, 0);
    }
    return next;
  }

  // Returns how long it took.
  double measure_time(at::Tensor& input) {
    const BorrowedGradients gradients(leaves_, gradients_exist_);
    const auto start = Clock::now();
    const at::Tensor output = stage_.forward(input);
    forward_seconds_.push_back(seconds_since(start));
    backward_seconds_.push_back(0);
    at::Tensor next = next_input(output);
    if (has_gradient_) {
      const at::Tensor gradient = at::ones_like(output);
      const auto begin = Clock::now();
      backward(input, output, gradient, gradients);
      backward_seconds_.back() = seconds_since(begin);
    }
    input = std::move(next);
    return forward_seconds_.back() + backward_seconds_.back();
  }

  int64_t gradient_bytes() const { return gradient_bytes_; }
  const std::vector<double>& forward_seconds() const {
    return forward_seconds_;
  }
  const std::vector<double>& backward_seconds() const {
    return backward_seconds_;
  }

 private:
  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  at::Tensor next_input(const at::Tensor& output) const {
    return has_gradient_ ? output.detach().set_requires_grad(true) : output;
  }

  static void backward(const at::Tensor& input, const at::Tensor& output,
                       const at::Tensor& gradient,
                       const BorrowedGradients& gradients) {
    torch::autograd::backward({output}, {gradient});
    if (input.requires_grad()) {
      input.mutable_grad() = at::Tensor();
    }
    gradients.drop_new();
  }

  const PlanStage& stage_;
  const bool gradients_exist_;
  std::vector<at::Tensor> leaves_;
  int64_t gradient_bytes_ = 0;
  bool has_gradient_ = false;
  std::vector<double> forward_seconds_, backward_seconds_;
};

at::Tensor first_input(const at::Tensor& x) {
  return x.detach().set_requires_grad(x.requires_grad());
}

// All stages in turn, as a pass has them: what a stage finds in the caches is
// what a step leaves there. Spread over time, the samples of a stage share no
// disturbance.
void measure_times(std::vector<StageProfiler>& profilers, const at::Tensor& x,
                   const ProfileOptions& options) {
  double total = 0;
  const double enough =
      options.seconds_per_stage * static_cast<double>(profilers.size());
  for (int i = 0;
       i < kMostRepetitions && (i < options.repetitions || total < enough);
       ++i) {
    at::Tensor input = first_input(x);
    for (StageProfiler& profiler : profilers) {
      total += profiler.measure_time(input);
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

Profile profile_stages(const std::vector<PlanStage>& stages,
                       const at::Tensor& x, const ProfileOptions& options) {
  check(stages);
  const RestoredState restored(stages, x);
  Profile profile;
  plan::Chain& chain = profile.chain;
  chain.input_bytes = memory_bytes(x);
  std::vector<StageProfiler> profilers;
  at::Tensor input = first_input(x);
  for (size_t i = 0; i < stages.size(); ++i) {
    StageProfiler& profiler =
        profilers.emplace_back(stages[i], options.gradients_exist);
    plan::Stage costs;
    costs.name = stages[i].name.empty() ? str("stage ", i) : stages[i].name;
    profiler.warm_up(input);
    input = profiler.measure_memory(input, costs);
    profile.gradient_bytes.push_back(profiler.gradient_bytes());
    chain.stages.push_back(std::move(costs));
  }
  input.reset();
  measure_times(profilers, x, options);
  set_times(chain.stages, profilers);
  plan::validate(chain);
  return profile;
}

void warm_up_stages(const std::vector<PlanStage>& stages, const at::Tensor& x) {
  check(stages);
  const RestoredState restored(stages, x);
  at::Tensor input = first_input(x);
  for (const PlanStage& stage : stages) {
    input = StageProfiler(stage, /*gradients_exist=*/false).warm_up(input);
  }
}

}  // namespace remat
