// The state of ATen's random generators, to be replayed.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace remat::detail {

// Taken from the default generators of the CPU and of the tensors' devices.
class RandomState {
 public:
  explicit RandomState(const std::vector<at::Tensor>& tensors);

  // Taken from these.
  explicit RandomState(std::vector<at::Generator> generators);

  // Sets the generators to the state taken.
  void restore() const;

  // The same where `now`, of these generators, is their present state: those
  // that stand at the state taken are left alone.
  void restore_from(const RandomState& now) const;

  // The present state of the same generators.
  RandomState now() const;

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

}  // namespace remat::detail
