// Recorded graphs and memory that changes, is replaced or is of another kind:
// what is computed again, what is held, and what is an error.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include "remat/memory/meter.h"
#include "remat/runtime/checkpoint_graph.h"
#include "remat/runtime/saved_tensor_hooks.h"
#include "tests/runtime/graph_helpers.h"
#include "tests/runtime/helpers.h"

namespace remat {
namespace {

using ::testing::HasSubstr;
using torch::autograd::grad;

TEST(GraphChanges, ChangesInPlace) {
  const at::Tensor x = input();
  for (const Policy& policy : {policy::nothing(), policy::everything()}) {
    expect_same_gradients(policy,
                          [&] {
                            at::Tensor y = (x * 1.5).sin_();
                            y.narrow(0, 0, 2).mul_(0.5).add_(x.narrow(0, 1, 2));
                            at::Tensor z = y.exp();
                            y.add_(1.0);
                            // Memory that somebody fills piece by piece.
                            at::Tensor filled = at::zeros_like(x);
                            filled.select(0, 1).copy_(z.select(0, 0));
                            return (filled.exp() * z.t()).cos() +
                                   y.t().sigmoid();
                          },
                          {x});
  }
}

// What came from outside is as it was for those who read it before.
TEST(GraphChanges, ChangesOfOutsideMemoryAreSeen) {
  const at::Tensor x = input();
  at::Tensor counter = at::ones({4, 4}, at::kDouble);
  const auto run = [&] {
    counter.fill_(1.0);
    const at::Tensor y = (x + counter).sin();
    counter.mul_(2.0);
    return y.exp() * (x - counter).cos();
  };
  expect_same_gradients(policy::nothing(), run, {x});
}

TEST(GraphChanges, RandomNumbersAreHeldAndDrawnOnce) {
  const at::Tensor x = input();
  int runs = 0;
  expect_same_gradients(policy::nothing(),
                        [&] {
                          ++runs;
                          return at::dropout(x.sin(), 0.5, true).exp() *
                                 at::rand_like(x).cos();
                        },
                        {x});
  EXPECT_EQ(runs, 2);
}

TEST(GraphChanges, RunningStatisticsAreUpdatedOnce) {
  const at::Tensor x = input();
  const auto normalized = [](const at::Tensor& t, const at::Tensor& mean) {
    return at::batch_norm(t.sin(), {}, {}, mean, at::ones({4}, at::kDouble),
                          /*training=*/true, 0.1, 1e-5, false)
        .exp();
  };
  const at::Tensor once = at::zeros({4}, at::kDouble);
  const at::Tensor plain = normalized(x, once);
  const at::Tensor mean = at::zeros({4}, at::kDouble);
  const at::Tensor out = checkpoint_graph(
      policy::nothing(),
      [&](const at::Tensor& t) { return normalized(t, mean); }, x);
  const OperatorCount count;
  EXPECT_TRUE(
      at::equal(grad({out.sum()}, {x})[0], grad({plain.sum()}, {x})[0]));
  EXPECT_EQ(count.of("aten::sin"), 1);
  EXPECT_TRUE(at::equal(mean, once));
}

// Batch normalization does not say that it changes them.
TEST(GraphChanges, StatisticsThatWereReadBeforeTheyChanged) {
  const at::Tensor x = input();
  const auto run = [&](bool recorded) {
    const at::Tensor mean = at::zeros({4}, at::kDouble);
    const auto fn = [&](const at::Tensor& t) {
      const at::Tensor before = (t + mean).sin();
      const at::Tensor normal = at::batch_norm(
          t, {}, {}, mean, at::ones({4}, at::kDouble), true, 0.1, 1e-5, false);
      return before.exp() * normal + (t + mean).cos();
    };
    const at::Tensor out =
        recorded ? checkpoint_graph(policy::nothing(), fn, x) : fn(x);
    return grad({out.sum()}, {x})[0];
  };
  EXPECT_TRUE(at::equal(run(true), run(false)));
}

TEST(GraphChanges, MemoryThatIsReplaced) {
  const at::Tensor x = input();
  expect_same_gradients(policy::nothing(),
                        [&] {
                          const at::Tensor a = x.sin();
                          const at::Tensor b = x.cos();
                          at::Tensor c = x.detach().exp();
                          c.set_(b.detach());
                          return (a * c).tanh() + b.exp();
                        },
                        {x});
}

TEST(GraphChanges, InferenceTensorsAreHeld) {
  const at::Tensor x = input();
  at::Tensor constant;
  {
    const c10::InferenceMode inference;
    constant = at::ones({4, 4}, at::kDouble);
  }
  expect_same_gradients(policy::nothing(),
                        [&] {
                          at::Tensor inside;
                          {
                            const c10::InferenceMode inference;
                            inside = constant.sin();
                          }
                          return (x.sin() + constant).exp() + inside;
                        },
                        {x});
}

TEST(GraphChanges, HeldValuesMustNotChange) {
  const at::Tensor x = at::ones({3}, at::kDouble).requires_grad_();
  at::Tensor base = x.clone();
  const at::Tensor out = checkpoint_graph(
      policy::nothing(), [](const at::Tensor& t) { return t.sin().exp(); },
      base);
  base.add_(1.0);
  try {
    grad({out.sum()}, {x});
    FAIL() << "nothing was thrown";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("inplace operation"),
              std::string::npos)
        << error.what();
  }
}

TEST(GraphChanges, SparseTensorsAreHeld) {
  const at::Tensor x = input();
  const at::Tensor sparse = at::eye(4, at::kDouble).to_sparse();
  expect_same_gradients(policy::nothing(),
                        [&] { return at::mm(sparse, x.sin()).exp(); }, {x});
}

TEST(GraphChanges, SparseTensorsMustNotChange) {
  const at::Tensor x = input();
  const auto run = [&](bool inside) {
    at::Tensor sparse = at::eye(4, at::kDouble).to_sparse();
    const at::Tensor out = checkpoint_graph(
        policy::nothing(),
        [&](const at::Tensor& t) {
          const at::Tensor y = at::mm(sparse, t.sin());
          if (inside) {
            sparse.mul_(2.0);
          }
          return y.exp();
        },
        x);
    if (!inside) {
      sparse.mul_(2.0);
    }
    grad({out.sum()}, {x});
  };
  EXPECT_THAT(error_of([&] { run(true); }),
              HasSubstr("[checkpoint_graph] a saved tensor, Double[4, 4], was "
                        "changed in place: version "));
  EXPECT_THROW(run(false), c10::Error);
}

TEST(GraphChanges, HooksAroundGetSparseTensors) {
  const at::Tensor x = input();
  const at::Tensor sparse = at::eye(4, at::kDouble).to_sparse();
  const auto fn = [&](const at::Tensor& t) {
    return at::mm(sparse, t.sin()).exp();
  };
  int packed = 0, unpacked = 0;
  at::Tensor out;
  {
    const SavedTensorHooks hooks(
        [&](const at::Tensor& t) {
          packed += t.is_sparse();
          return t.clone();
        },
        [&](const at::Tensor& t) {
          unpacked += t.is_sparse();
          return t.clone();
        });
    out = checkpoint_graph(policy::nothing(), fn, x);
  }
  EXPECT_EQ(packed, 1);
  EXPECT_TRUE(
      at::equal(grad({out.sum()}, {x})[0], grad({fn(x).sum()}, {x})[0]));
  EXPECT_EQ(unpacked, 1);
}

// They have sizes and no memory.
TEST(GraphChanges, ZeroTensorsAreHeld) {
  const at::Tensor x = input();
  const at::Tensor zero = at::_efficientzerotensor({4, 4}, x.options());
  expect_same_gradients(policy::nothing(),
                        [&] { return (x.sin() * zero + x.cos()).exp(); }, {x});
}

int times_run = 0;

at::Tensor count_run(const at::Tensor& x) {
  ++times_run;
  return x * times_run;
}

TORCH_LIBRARY(remat_graph_test, library) {
  library.def("count_run(Tensor x) -> Tensor");
  library.impl("count_run", c10::DispatchKey::CPU,
               torch::CppFunction::makeFromUnboxedFunction(&count_run));
}

// Nobody knows what state an operator of somebody else's has.
TEST(GraphChanges, OperatorsOfOthersAreHeld) {
  const at::Tensor x = input();
  const auto counted = c10::Dispatcher::singleton()
                           .findSchemaOrThrow("remat_graph_test::count_run", "")
                           .typed<at::Tensor(const at::Tensor&)>();
  times_run = 0;
  const at::Tensor out = checkpoint_graph(
      policy::nothing(),
      [&](const at::Tensor& t) {
        return (t.sin() * counted.call(t.detach()).cos()).exp();
      },
      x);
  const at::Tensor got = grad({out.sum()}, {x})[0];
  EXPECT_EQ(times_run, 1);
  EXPECT_TRUE(
      at::equal(got, grad({(x.sin() * x.detach().cos()).exp().sum()}, {x})[0]));
}

TEST(GraphChanges, AnOperatorThatThrowsLeaksNothing) {
  const at::Tensor x = at::full({64, 64}, 0.5f).requires_grad_();
  const MemoryMeter meter;
  EXPECT_THROW(checkpoint_graph(
                   policy::nothing(),
                   [](const at::Tensor& t) {
                     const at::Tensor y = t.sin().exp();
                     return at::mm(y, y.narrow(0, 0, 3));
                   },
                   x),
               c10::Error);
  EXPECT_EQ(meter.live_bytes(), 0);
}

TEST(GraphChanges, WhatAFunctionThatThrewHasReadMustNotChange) {
  const at::Tensor x = input();
  at::Tensor captured = at::full({4, 4}, 2.0, at::kDouble);
  at::Tensor half;
  EXPECT_THROW(checkpoint_graph(
                   policy::nothing(),
                   [&](const at::Tensor& t) -> at::Tensor {
                     half = (t * captured).sin().exp();
                     throw std::runtime_error("stop here");
                   },
                   x),
               std::runtime_error);
  captured.add_(1.0);
  EXPECT_THAT(error_of([&] { grad({half.sum()}, {x}); }),
              HasSubstr("a value that the recomputation starts from was "
                        "changed in place"));
}

}  // namespace
}  // namespace remat
