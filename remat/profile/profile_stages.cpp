#include "remat/profile/profile_stages.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <chrono>
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
  explicit BorrowedGradients(bool others_exist) : others_exist_(others_exist) {}
  ~BorrowedGradients() {
    for (const auto& [leaf, gradient] : own_) {
      leaf.mutable_grad() = gradient;
    }
  }
  BorrowedGradients(const BorrowedGradients&) = delete;
  BorrowedGradients& operator=(const BorrowedGradients&) = delete;

  // Gives the leaf another gradient to add to until then, if there is to be
  // one.
  void borrow(const at::Tensor& leaf) {
    own_.emplace_back(leaf, leaf.grad());
    leaf.mutable_grad() = others_exist_ ? at::zeros_like(leaf) : at::Tensor();
    bytes_ += memory_bytes(leaf);
  }

  void drop_new() const {
    if (!others_exist_) {
      for (const auto& [leaf, gradient] : own_) {
        leaf.mutable_grad() = at::Tensor();
      }
    }
  }

  int64_t bytes() const { return bytes_; }
  int64_t new_bytes() const { return others_exist_ ? 0 : bytes_; }

 private:
  const bool others_exist_;
  std::vector<std::pair<at::Tensor, at::Tensor>> own_;
  int64_t bytes_ = 0;
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

class StageProfiler {
 public:
  StageProfiler(const PlanStage& stage, const at::Tensor& input,
                const ProfileOptions& options)
      : stage_(stage),
        input_(input),
        options_(options),
        gradients_(options.gradients_exist) {}

  int64_t gradient_bytes() const { return gradients_.bytes(); }

  // The output, without its graph; a leaf that requires a gradient if it did.
  at::Tensor measure(plan::Stage& costs) {
    warm_up();
    measure_memory(costs);
    measure_time(costs);
    return output_.detach().set_requires_grad(has_gradient_);
  }

 private:
  // Caches of the stage and of libtorch; and what its backward adds to.
  void warm_up() {
    const at::Tensor output = stage_.forward(input_);
    if (!output.defined()) {
      fail_usage("profile", "a stage returned no tensor");
    }
    has_gradient_ = output.requires_grad();
    if (!has_gradient_) {
      return;
    }
    for (const at::Tensor& leaf : leaves_behind(output)) {
      if (!leaf.is_same(input_)) {
        gradients_.borrow(leaf);
      }
    }
    backward(output, at::ones_like(output));
  }

  void measure_memory(plan::Stage& costs) {
    MemoryMeter meter;
    at::Tensor output = stage_.forward(input_);
    costs.output_bytes = memory_bytes(output);
    // A stage that returns its input, or a view of it, makes no new memory; a
    // chain cannot say so.
    costs.saved_bytes = std::max(meter.live_bytes(), costs.output_bytes);
    costs.forward_workspace_bytes =
        std::max<int64_t>(meter.peak_bytes() - costs.saved_bytes, 0);
    if (has_gradient_) {
      at::Tensor gradient = at::ones_like(output);
      const int64_t gradients =
          memory_bytes(gradient) +
          (input_.requires_grad() ? memory_bytes(input_) : 0);
      // Its memory is counted; nothing holds the output but the stage.
      output_ = output.detach();
      meter.reset_peak();
      backward(std::exchange(output, {}), std::exchange(gradient, {}));
      costs.backward_workspace_bytes =
          std::max<int64_t>(meter.peak_bytes() - costs.saved_bytes - gradients -
                                gradients_.new_bytes(),
                            0);
    } else {
      output_ = output;
    }
  }

  void measure_time(plan::Stage& costs) {
    std::vector<double> forward, backward_times;
    double total = 0;
    for (int i = 0;
         i < kMostRepetitions &&
         (i < options_.repetitions || total < options_.seconds_per_stage);
         ++i) {
      const auto start = Clock::now();
      const at::Tensor output = stage_.forward(input_);
      const auto middle = Clock::now();
      forward.push_back(std::chrono::duration<double>(middle - start).count());
      backward_times.push_back(0);
      if (has_gradient_) {
        const at::Tensor gradient = at::ones_like(output);
        const auto begin = Clock::now();
        backward(output, gradient);
        backward_times.back() =
            std::chrono::duration<double>(Clock::now() - begin).count();
      }
      total += forward.back() + backward_times.back();
    }
    costs.forward_seconds = median(std::move(forward));
    costs.backward_seconds = median(std::move(backward_times));
  }

  void backward(const at::Tensor& output, const at::Tensor& gradient) {
    torch::autograd::backward({output}, {gradient});
    if (input_.requires_grad()) {
      input_.mutable_grad() = at::Tensor();
    }
    gradients_.drop_new();
  }

  const PlanStage& stage_;
  const at::Tensor& input_;
  const ProfileOptions& options_;
  BorrowedGradients gradients_;
  at::Tensor output_;
  bool has_gradient_ = false;
};

}  // namespace

Profile profile_stages(const std::vector<PlanStage>& stages,
                       const at::Tensor& x, const ProfileOptions& options) {
  if (stages.empty()) {
    fail_usage("profile", "there are no stages");
  }
  if (!c10::GradMode::is_enabled()) {
    fail_usage("profile", "gradients are off; a profile measures backward too");
  }
  const RestoredState restored(stages, x);
  Profile profile;
  plan::Chain& chain = profile.chain;
  chain.input_bytes = memory_bytes(x);
  at::Tensor input = x.detach().set_requires_grad(x.requires_grad());
  for (size_t i = 0; i < stages.size(); ++i) {
    plan::Stage costs;
    costs.name = stages[i].name.empty() ? str("stage ", i) : stages[i].name;
    StageProfiler profiler(stages[i], input, options);
    at::Tensor output = profiler.measure(costs);
    profile.gradient_bytes.push_back(profiler.gradient_bytes());
    chain.stages.push_back(std::move(costs));
    input = std::move(output);
  }
  plan::validate(chain);
  return profile;
}

}  // namespace remat
