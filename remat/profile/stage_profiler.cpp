#include "remat/profile/stage_profiler.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <chrono>
#include <unordered_set>
#include <utility>

#include "remat/base/error.h"
#include "remat/memory/meter.h"
#include "remat/runtime/tensor_layout.h"

namespace remat {
namespace {

using Clock = std::chrono::steady_clock;
using Tensors = std::vector<at::Tensor>;

int64_t memory_bytes(const at::Tensor& tensor) {
  return !tensor.defined() ? 0
         : tensor.has_storage()
             ? static_cast<int64_t>(tensor.storage().nbytes())
             : static_cast<int64_t>(tensor.nbytes());
}

bool shares_memory(const at::Tensor& tensor, const Tensors& others) {
  return std::any_of(others.begin(), others.end(),
                     [&](const at::Tensor& other) {
                       return detail::shares_memory(tensor, other);
                     });
}

Tensors with_gradient(const Tensors& tensors) {
  Tensors result;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.requires_grad()) {
      result.push_back(tensor);
    }
  }
  return result;
}

// Those of the inputs that the stage passes on, for others to read, or those
// that it does not. A stage of one tensor passes nothing on: where it returns
// its input, or a view of it, its output counts as new.
Tensors passed_on(const Tensors& inputs, const Tensors& outputs, bool are) {
  Tensors result;
  for (const at::Tensor& input : inputs) {
    if ((outputs.size() > 1 && shares_memory(input, outputs)) == are) {
      result.push_back(input);
    }
  }
  return result;
}

// The leaves whose gradients a backward from here adds to.
Tensors leaves_behind(const Tensors& outputs) {
  Tensors leaves;
  std::vector<torch::autograd::Node*> open;
  std::unordered_set<torch::autograd::Node*> seen;
  const auto visit = [&](torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) {
      open.push_back(node);
    }
  };
  for (const at::Tensor& output : outputs) {
    visit(output.grad_fn().get());
  }
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

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Where a backward begins: outputs of the stage's own graph.
Tensors roots(const Tensors& outputs) {
  Tensors result = with_gradient(outputs);
  std::erase_if(result,
                [](const at::Tensor& tensor) { return tensor.is_leaf(); });
  return result;
}

Tensors ones_like(const Tensors& tensors) {
  Tensors ones;
  for (const at::Tensor& tensor : tensors) {
    ones.push_back(at::ones_like(tensor));
  }
  return ones;
}

Tensors next_inputs(const Tensors& outputs) {
  Tensors next;
  for (const at::Tensor& output : outputs) {
    next.push_back(output.defined() && output.requires_grad()
                       ? output.detach().set_requires_grad(true)
                       : output);
  }
  return next;
}

// Takes what it is given, so that a caller may let go of it.
void backward(const Tensors& inputs, Tensors outputs, Tensors root_gradients,
              const BorrowedGradients& gradients) {
  const Tensors from = roots(outputs);
  outputs.clear();
  if (!from.empty()) {
    torch::autograd::backward(from, root_gradients);
  }
  for (const at::Tensor& input : with_gradient(inputs)) {
    input.mutable_grad() = at::Tensor();
  }
  gradients.drop_new();
}

}  // namespace

int64_t memory_bytes(const Tensors& tensors) {
  int64_t bytes = 0;
  Tensors seen;
  for (const at::Tensor& tensor : tensors) {
    if (!shares_memory(tensor, seen)) {
      bytes += memory_bytes(tensor);
      seen.push_back(tensor);
    }
  }
  return bytes;
}

StageProfiler::StageProfiler(const ListStage& stage, bool gradients_exist)
    : stage_(stage), gradients_exist_(gradients_exist) {}

Tensors StageProfiler::warm_up(const Tensors& inputs) {
  const Tensors outputs = stage_.forward(inputs);
  for (const at::Tensor& output : outputs) {
    if (!output.defined() && outputs.size() == 1) {
      fail_usage("profile", "a stage returned no tensor");
    }
  }
  for (const at::Tensor& leaf : leaves_behind(roots(outputs))) {
    if (!std::any_of(
            inputs.begin(), inputs.end(),
            [&](const at::Tensor& input) { return leaf.is_same(input); })) {
      leaves_.push_back(leaf);
      gradient_bytes_ += memory_bytes(leaf);
    }
  }
  Tensors next = next_inputs(outputs);
  const BorrowedGradients gradients(leaves_, gradients_exist_);
  backward(inputs, outputs, ones_like(roots(outputs)), gradients);
  return next;
}

Tensors StageProfiler::measure_memory(const Tensors& inputs,
                                      plan::Stage& costs) {
  const BorrowedGradients gradients(leaves_, gradients_exist_);
  MemoryMeter meter;
  Tensors outputs = stage_.forward(inputs);
  const int64_t passed_bytes = memory_bytes(passed_on(inputs, outputs, true));
  costs.output_bytes = memory_bytes(outputs) - passed_bytes;
  // A stage that returns its input, or a view of it, makes no new memory; a
  // chain cannot say so.
  costs.saved_bytes = std::max(meter.live_bytes(), costs.output_bytes);
  costs.forward_workspace_bytes =
      std::max<int64_t>(meter.peak_bytes() - costs.saved_bytes, 0);
  shared_bytes_ = passed_bytes +
                  memory_bytes(with_gradient(passed_on(inputs, outputs, true)));
  Tensors next = next_inputs(outputs);
  if (!roots(outputs).empty()) {
    Tensors root_gradients = ones_like(roots(outputs));
    const int64_t counted_elsewhere =
        memory_bytes(root_gradients) +
        memory_bytes(with_gradient(passed_on(inputs, outputs, false))) +
        (gradients_exist_ ? 0 : gradient_bytes_);
    meter.reset_peak();
    // Their memory is counted; nothing holds the outputs but the stage.
    backward(inputs, std::exchange(outputs, {}),
             std::exchange(root_gradients, {}), gradients);
    costs.backward_workspace_bytes = std::max<int64_t>(
        meter.peak_bytes() - costs.saved_bytes - counted_elsewhere, 0);
  }
  return next;
}

double StageProfiler::measure_time(Tensors& inputs) {
  const BorrowedGradients gradients(leaves_, gradients_exist_);
  const auto start = Clock::now();
  const Tensors outputs = stage_.forward(inputs);
  forward_seconds_.push_back(seconds_since(start));
  backward_seconds_.push_back(0);
  Tensors next = next_inputs(outputs);
  const Tensors root_gradients = ones_like(roots(outputs));
  if (!root_gradients.empty()) {
    const auto begin = Clock::now();
    backward(inputs, outputs, root_gradients, gradients);
    backward_seconds_.back() = seconds_since(begin);
  }
  inputs = std::move(next);
  return forward_seconds_.back() + backward_seconds_.back();
}

}  // namespace remat
