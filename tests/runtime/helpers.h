// What the tests of regions share.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "remat/runtime/checkpoint.h"

namespace remat {

inline at::Tensor values(at::ArrayRef<double> list) {
  return at::tensor(list, at::kDouble);
}

inline void expect_near(const at::Tensor& tensor, const at::Tensor& expected,
                        double tolerance = 1e-12) {
  ASSERT_TRUE(tensor.defined());
  ASSERT_EQ(tensor.sizes(), expected.sizes());
  EXPECT_TRUE(at::allclose(tensor, expected, tolerance, tolerance))
      << tensor << "\nexpected\n"
      << expected;
}

// The text of the CheckpointError that the action throws.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "no CheckpointError";
}

}  // namespace remat
