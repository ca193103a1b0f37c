// State outside a region that it changes besides what it returns, and that must
// look to the recomputation as it did to the forward.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

namespace at {
struct Generator;
}

namespace remat::detail {

// Three steps, each giving the next: taken when the forward begins; sets the
// state of then when the recomputation begins; puts back what it found when the
// recomputation ends.
using RestoreState = std::function<void()>;
using ReplayState = std::function<RestoreState()>;
using SnapshotState = std::function<ReplayState()>;

// Copies of a value, which must outlive the region's graph.
template <class T>
SnapshotState value_state(T& value) {
  return [&value]() -> ReplayState {
    return [&value, at_forward = value]() -> RestoreState {
      T now = std::exchange(value, at_forward);
      return [&value, now = std::move(now)] { value = now; };
    };
  };
}

// Copies of the tensors' values. Setting them back counts as no change in
// place.
SnapshotState tensor_state(std::vector<at::Tensor> tensors);

// The state of random generators.
SnapshotState generator_state(const std::vector<at::Generator>& generators);

}  // namespace remat::detail
