// What the tests of recorded graphs share.
#pragma once

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "remat/runtime/checkpoint_graph.h"

namespace remat {

// The operators that ran in this thread while it lived, by name.
class OperatorCount {
 public:
  OperatorCount()
      : handle_(
            at::addThreadLocalCallback(at::RecordFunctionCallback(count).scopes(
                {at::RecordScope::FUNCTION}))) {
    counts().clear();
  }
  ~OperatorCount() { at::removeCallback(handle_); }
  OperatorCount(const OperatorCount&) = delete;
  OperatorCount& operator=(const OperatorCount&) = delete;

  int of(const std::string& name) const { return counts()[name]; }

 private:
  static std::map<std::string, int>& counts() {
    thread_local std::map<std::string, int> map;
    return map;
  }
  static std::unique_ptr<at::ObserverContext> count(
      const at::RecordFunction& function) {
    ++counts()[function.name()];
    return nullptr;
  }

  at::CallbackHandle handle_;
};

inline at::Tensor input(int64_t n = 4) {
  at::manual_seed(1);
  return at::randn({n, n}, at::kDouble).requires_grad_();
}

// Gradients with and without the graph are the same bits.
template <class Fn>
void expect_same_gradients(const Policy& policy, Fn fn,
                           const std::vector<at::Tensor>& inputs) {
  at::manual_seed(3);
  const at::Tensor plain = fn();
  at::manual_seed(3);
  const at::Tensor out = checkpoint_graph(policy, fn);
  EXPECT_TRUE(at::equal(plain, out));
  const auto expected = torch::autograd::grad({plain.sum()}, inputs);
  const auto got = torch::autograd::grad({out.sum()}, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(at::equal(expected[i], got[i])) << "input " << i;
  }
}

}  // namespace remat
