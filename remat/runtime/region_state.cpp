#include "remat/runtime/region_state.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "remat/runtime/random_state.h"

namespace remat::detail {
namespace {

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  copies.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(tensor.detach().clone());
  }
  return copies;
}

void set_values(const std::vector<at::Tensor>& tensors,
                const std::vector<at::Tensor>& values) {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < tensors.size(); ++i) {
    // variable_data() has a version counter of its own.
    tensors[i].variable_data().copy_(values[i]);
  }
}

}  // namespace

SnapshotState tensor_state(std::vector<at::Tensor> tensors) {
  return [tensors = std::move(tensors)]() -> ReplayState {
    return [tensors, at_forward = copies_of(tensors)]() -> RestoreState {
      std::vector<at::Tensor> now = copies_of(tensors);
      set_values(tensors, at_forward);
      return [tensors, now = std::move(now)] { set_values(tensors, now); };
    };
  };
}

SnapshotState generator_state(const std::vector<at::Generator>& generators) {
  return [generators]() -> ReplayState {
    return [at_forward = RandomState(generators)]() -> RestoreState {
      RandomState now = at_forward.now();
      at_forward.restore();
      return [now = std::move(now)] { now.restore(); };
    };
  };
}

}  // namespace remat::detail
