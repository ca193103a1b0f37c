#include "remat/runtime/random_state.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace remat::detail {
namespace {

std::vector<at::Generator> default_generators(
    const std::vector<at::Tensor>& tensors) {
  std::vector<at::Generator> generators{at::detail::getDefaultCPUGenerator()};
  std::vector<at::Device> devices;
  for (const at::Tensor& tensor : tensors) {
    // Meta tensors have no values, so nothing random either.
    if (!tensor.defined() || tensor.is_cpu() || tensor.is_meta()) {
      continue;
    }
    if (std::find(devices.begin(), devices.end(), tensor.device()) ==
        devices.end()) {
      devices.push_back(tensor.device());
      generators.push_back(
          at::globalContext().defaultGenerator(tensor.device()));
    }
  }
  return generators;
}

// States are bytes in host memory, whatever the generator's device; at::equal
// would cost more than the comparison.
bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

// A state of 5 KB is most of what a small region holds, and regions that draw
// nothing leave it as it was: they share one tensor.
at::Tensor shared_state(const at::Generator& generator) {
  thread_local std::pair<c10::GeneratorImpl*, at::Tensor> last;
  at::Tensor state = generator.get_state();
  if (last.first != generator.unsafeGetGeneratorImpl() ||
      !same_bytes(last.second, state)) {
    last = {generator.unsafeGetGeneratorImpl(), std::move(state)};
  }
  return last.second;
}

}  // namespace

RandomState::RandomState(std::vector<at::Generator> generators) {
  for (at::Generator& generator : generators) {
    const std::lock_guard lock(generator.mutex());
    at::Tensor state = shared_state(generator);
    states_.emplace_back(std::move(generator), std::move(state));
  }
}

RandomState::RandomState(const std::vector<at::Tensor>& tensors)
    : RandomState(default_generators(tensors)) {}

void RandomState::restore() const {
  for (const auto& [generator, state] : states_) {
    at::Generator handle = generator;
    const std::lock_guard lock(handle.mutex());
    handle.set_state(state);
  }
}

void RandomState::restore_from(const RandomState& now) const {
  for (size_t i = 0; i < states_.size(); ++i) {
    const auto& [generator, state] = states_[i];
    if (!state.is_same(now.states_[i].second)) {
      at::Generator handle = generator;
      const std::lock_guard lock(handle.mutex());
      handle.set_state(state);
    }
  }
}

RandomState RandomState::now() const {
  std::vector<at::Generator> generators;
  for (const auto& [generator, state] : states_) {
    generators.push_back(generator);
  }
  return RandomState(std::move(generators));
}

}  // namespace remat::detail
