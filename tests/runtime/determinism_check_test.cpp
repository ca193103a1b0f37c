// Recomputations that are not the forward again, and what the errors say.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "remat/runtime/checkpoint.h"
#include "tests/runtime/helpers.h"

namespace remat {
namespace {

using ::testing::HasSubstr;
using torch::autograd::backward;
using torch::autograd::grad;

// A flip that changes no shape is seen by its values.
TEST(DeterminismCheck, OtherValuesAreFoundOnDemand) {
  const at::Tensor x = values({0.7}).requires_grad_();
  for (const auto check :
       {DeterminismCheck::kMetadata, DeterminismCheck::kValues}) {
    int calls = 0;
    const at::Tensor y = checkpoint(
        CheckpointOptions().determinism_check(check).name("router"),
        [&](const at::Tensor& t) {
          return at::exp(at::sin(calls++ == 0 ? t : t * 2));
        },
        x);
    const std::string error = error_of([&] { grad({y}, {x}); });
    if (check == DeterminismCheck::kMetadata) {
      EXPECT_EQ(error, "no CheckpointError");
    } else {
      EXPECT_THAT(error, HasSubstr("\"router\""));
      EXPECT_THAT(error, HasSubstr("tensor 1, Double[1] on cpu: other values "
                                   "than in forward"));
    }
  }
  // The same again is no error.
  const at::Tensor y = checkpoint(
      CheckpointOptions().determinism_check(DeterminismCheck::kValues),
      [](const at::Tensor& t) { return t.t().exp().sin() * t.t(); },
      values({1, 2, 3, 4, 5, 6}).view({3, 2}).requires_grad_());
  EXPECT_NO_THROW(backward({y.sum()}));
}

// Case 15, Lightning#19267, LlamaFactory#6438: other tensors when recomputed.
TEST(DeterminismCheck, OtherTensorsWhenRecomputed) {
  using Function = std::function<at::Tensor(const at::Tensor&)>;
  const auto run = [](const CheckpointOptions& options, const Function& forward,
                      const Function& again, at::Tensor* gradient = nullptr) {
    return error_of([&] {
      const at::Tensor x = values({0.7}).requires_grad_();
      const at::Tensor y = checkpoint(
          options,
          [&](const at::Tensor& t) {
            return is_recomputing() ? again(t) : forward(t);
          },
          x);
      const at::Tensor result = grad({y.sum()}, {x})[0];
      if (gradient != nullptr) {
        *gradient = result;
      }
    });
  };
  const Function exp_sin = [](const at::Tensor& t) { return t.sin().exp(); };
  const CheckpointOptions plain;
  EXPECT_THAT(run(plain, exp_sin,
                  [](const at::Tensor& t) {
                    return t.sin() * values({1, 2});
                  }),
              HasSubstr("Double[1] on cpu in forward, Double[2]"));
  EXPECT_THAT(
      run(
          plain, [](const at::Tensor& t) { return t.sin().exp().sin(); },
          exp_sin),
      HasSubstr("saved 2 tensors when it was recomputed, 3 in forward"));
  const Function more = [](const at::Tensor& t) {
    return t.sin().exp().sin().cos();
  };
  at::Tensor gradient;
  EXPECT_EQ(run(plain, exp_sin, more, &gradient), "no CheckpointError");
  expect_near(gradient, values({1.4566392950360747}));
  EXPECT_THAT(run(CheckpointOptions().early_stop(false), exp_sin, more),
              HasSubstr("only 2 in forward"));
}

// With debug() the error says at which operator the two runs part.
TEST(DeterminismCheck, DebugNamesTheOperator) {
  const at::Tensor x = values({0.7}).requires_grad_();
  const auto run = [&x](const CheckpointOptions& options) {
    const at::Tensor y = checkpoint(
        options,
        [](const at::Tensor& t) {
          const at::Tensor u = t.sin();
          return is_recomputing() ? u.expand({2}).cos().sum() : u.exp();
        },
        x);
    return error_of([&] { grad({y}, {x}); });
  };
  EXPECT_THAT(run(CheckpointOptions()), HasSubstr("debug(true) names"));
  for (const bool keeps : {true, false}) {
    CheckpointOptions options;
    options.debug(true).early_stop(false);
    if (keeps) {
      options.policy(policy::operators({"aten::sin"}));
    }
    EXPECT_THAT(
        run(options),
        HasSubstr("Operators: after operator 0, aten::sin, aten::exp in "
                  "forward, aten::expand recomputed (2 and 4 in all)"));
  }
}

}  // namespace
}  // namespace remat
