// Plans of recorded graphs: where they cut, and what that takes.
#include "remat/runtime/graph_plan.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/memory/meter.h"
#include "remat/runtime/checkpoint_graph.h"
#include "tests/runtime/helpers.h"

namespace remat {
namespace {

using torch::autograd::grad;

constexpr int64_t kValue = 1 << 16;  // bytes of one value

at::Tensor row() { return at::full({kValue / 4}, 0.5f).requires_grad_(); }

at::Tensor chain(at::Tensor x, int steps) {
  for (int i = 0; i < steps; ++i) {
    x = x.tanh();
  }
  return x;
}

TEST(GraphPlan, AChainOfNStepsTakesTwoSquareRoots) {
  for (const int steps : {16, 100, 900}) {
    const at::Tensor x = row();
    const auto fn = [steps](const at::Tensor& t) { return chain(t, steps); };
    const MemoryMeter planning;
    const GraphPlan plan = plan_graph(fn, x);
    EXPECT_LE(planning.peak_bytes(), 3 * kValue) << "planning keeps nothing";
    const auto root = static_cast<int64_t>(std::ceil(std::sqrt(steps)));
    EXPECT_LE(plan.peak_bytes, (2 * root + 1) * kValue) << plan.describe();
    EXPECT_EQ(plan.plain_bytes, steps * kValue);
    const MemoryMeter meter;
    const at::Tensor out = checkpoint_graph(plan, fn, x);
    const at::Tensor gradient = grad({out.sum()}, {x})[0];
    // What is planned, two gradients, the sum's, and the output.
    EXPECT_LE(meter.peak_bytes(),
              plan.held_bytes + plan.largest_segment_bytes + 5 * kValue);
    EXPECT_TRUE(at::equal(gradient, grad({fn(x).sum()}, {x})[0]));
  }
}

// What comes from outside is there anyway, however often it is read.
TEST(GraphPlan, WeightsAndInputsAreNoObstacle) {
  const at::Tensor x = row();
  const at::Tensor w = row();
  const auto fn = [&w](const at::Tensor& t) {
    at::Tensor y = t;
    for (int i = 0; i < 64; ++i) {
      y = (y * w + t).tanh();
    }
    return y;
  };
  const GraphPlan plan = plan_graph(fn, x);
  EXPECT_GE(plan.segments, 6) << plan.describe();
  EXPECT_LE(plan.held_bytes + plan.largest_segment_bytes, plan.plain_bytes / 4);
}

// A value that skips many steps is alive at each cut, and counted once.
TEST(GraphPlan, SkipsAreHeldOnce) {
  const auto fn = [](const at::Tensor& t) {
    const at::Tensor skip = t.sin();
    return chain(skip, 64) * skip;
  };
  const at::Tensor x = row();
  const GraphPlan plan = plan_graph(fn, x);
  EXPECT_GT(plan.segments, 4) << plan.describe();
  EXPECT_LE(plan.held_bytes + plan.largest_segment_bytes, 19 * kValue);
  const at::Tensor out = checkpoint_graph(plan, fn, x);
  EXPECT_TRUE(
      at::equal(grad({out.sum()}, {x})[0], grad({fn(x).sum()}, {x})[0]));
}

TEST(GraphPlan, CutsWhereLittleIsAlive) {
  // Narrow between wide blocks: only the narrow places are worth holding.
  const auto fn = [](const at::Tensor& t) {
    at::Tensor x = t;
    for (int block = 0; block < 9; ++block) {
      const at::Tensor wide = x.unsqueeze(0).repeat({16, 1});
      x = chain(wide, 4).mean(0);
    }
    return x;
  };
  const at::Tensor x = row();
  const GraphPlan plan = plan_graph(fn, x);
  EXPECT_LE(plan.held_bytes, 9 * kValue) << plan.describe();
  EXPECT_GE(plan.plain_bytes, 9 * 4 * 16 * kValue);
  EXPECT_LE(plan.largest_segment_bytes, 2 * 5 * 16 * kValue);
}

TEST(GraphPlan, OtherOperatorsThanPlannedAreAnError) {
  const at::Tensor x = row();
  const GraphPlan plan =
      plan_graph([](const at::Tensor& t) { return t.sin().exp().tanh(); }, x);
  EXPECT_EQ(error_of([&] {
              checkpoint_graph(
                  plan,
                  [](const at::Tensor& t) { return t.sin().cos().tanh(); }, x);
            }),
            "[checkpoint_graph] operator 1 is aten::cos; the plan was made for "
            "a function that runs aten::exp there. Plan anew: plan_graph(fn, "
            "inputs).");
  EXPECT_EQ(
      error_of([&] {
        checkpoint_graph(
            plan,
            [](const at::Tensor& t) { return t.sin().exp().tanh().abs(); }, x);
      }),
      "[checkpoint_graph] operator 3 is aten::abs; the plan was made for one "
      "of 3 operators. Plan anew: plan_graph(fn, inputs).");
  EXPECT_EQ(
      error_of([&] {
        checkpoint_graph(
            plan, [](const at::Tensor& t) { return t.sin().exp(); }, x);
      }),
      "[checkpoint_graph] the function ran 2 operators; the plan was made for "
      "one of 3 operators. Plan anew: plan_graph(fn, inputs).");
  // Also where the other operator is a view, or draws random numbers.
  EXPECT_THAT(
      error_of([&] {
        checkpoint_graph(
            plan,
            [](const at::Tensor& t) { return t.slice(0, 0, 2).exp().tanh(); },
            x);
      }),
      ::testing::HasSubstr("operator 0 is aten::slice.Tensor; "));
  EXPECT_THAT(error_of([&] {
                checkpoint_graph(
                    plan,
                    [](const at::Tensor& t) {
                      const at::Tensor noise = at::rand_like(t);
                      return (noise * t).sin().exp();
                    },
                    x);
              }),
              ::testing::HasSubstr("operator 0 is aten::rand_like; "));
}

TEST(GraphPlan, APlanOfTwoMindsIsAnError) {
  const at::Tensor x = row();
  const auto fn = [](const at::Tensor& t) { return t.sin().exp().tanh(); };
  GraphPlan plan = plan_graph(fn, x);
  plan.held.pop_back();
  try {
    checkpoint_graph(plan, fn, x);
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "[checkpoint_graph] the plan has 3 operators and says of 2 "
                 "whether they are held; both must be of one plan_graph()");
  }
}

TEST(GraphPlan, ABackwardInsideCannotBePlanned) {
  const at::Tensor x = row();
  const auto fn = [](const at::Tensor& t) {
    const at::Tensor y = t.sin().exp();
    return y * grad({y.sum()}, {t}, {}, true)[0].detach();
  };
  try {
    plan_graph(fn, x);
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "[plan_graph] the function runs a backward pass inside, which "
                 "needs values that planning does not hold; give "
                 "checkpoint_graph() a policy");
  }
}

// Case 29 of the field, pytorch#197838, #161650, #190758: a smaller budget gave
// a higher peak, and other random numbers.
TEST(GraphPlan, BudgetsAreKept) {
  constexpr int64_t kMiB = 1 << 20;
  const at::Tensor x = at::full({kMiB / 4}, 0.5f).requires_grad_();
  const auto fn = [](const at::Tensor& t) {
    return at::dropout(chain(t, 8), 0.25, true);
  };
  at::manual_seed(2);
  const at::Tensor expected = grad({fn(x).sum()}, {x})[0];
  const int64_t least = plan_graph(fn, x).peak_bytes;
  int64_t smaller_peak = 0;
  for (const int64_t budget : {0, 1, 2, 4, 5, 6, 7, 8, 9, 16}) {
    const GraphPlan plan = plan_graph_within(budget * kMiB, fn, x);
    EXPECT_EQ(plan.fits, budget * kMiB >= least) << plan.describe();
    EXPECT_LE(plan.peak_bytes, std::max(budget * kMiB, least));
    at::manual_seed(2);
    const MemoryMeter meter;
    const at::Tensor out = checkpoint_graph(plan, fn, x);
    EXPECT_LE(meter.live_bytes() - kMiB, std::max(budget * kMiB, least));
    const at::Tensor gradient = grad({out.sum()}, {x})[0];
    EXPECT_GE(meter.peak_bytes(), smaller_peak) << budget << " MiB";
    // The output, its sum's gradient and two in a step.
    EXPECT_LE(meter.peak_bytes(), plan.peak_bytes + 4 * kMiB);
    smaller_peak = meter.peak_bytes();
    EXPECT_TRUE(at::equal(gradient, expected)) << budget << " MiB";
  }
  // All that the plain run holds: nothing is computed again.
  EXPECT_EQ(plan_graph_within(16 * kMiB, fn, x).segments, 0);
  EXPECT_THAT([&] { plan_graph_within(-1, fn, x); },
              testing::ThrowsMessage<UsageError>(
                  "[plan_graph] budget_bytes is -1; it must be 0 or more"));
  for (const char* text : {"nan", "inf", "-1MiB", "1e400"}) {
    EXPECT_THROW(parse_bytes(text), UsageError) << text;
  }
}

TEST(GraphPlan, NothingToPlan) {
  const at::Tensor x = row();
  const GraphPlan plan = plan_graph([](const at::Tensor& t) { return t; }, x);
  EXPECT_EQ(plan.segments, 0);
  EXPECT_EQ(plan.plain_bytes, 0);
}

// Never more than planned for, and the plain gradients, whatever the graph.
RC_GTEST_PROP(GraphPlan, RandomGraphs, ()) {
  const auto choices = *rc::gen::container<std::vector<std::pair<int, int>>>(
      rc::gen::pair(rc::gen::inRange(0, 6), rc::gen::inRange(0, 1000)));
  const at::Tensor x = at::full({256}, 0.5f).requires_grad_();
  const auto fn = [&choices](const at::Tensor& t) {
    std::vector<at::Tensor> nodes{t};
    for (const auto& [kind, pick] : choices) {
      const at::Tensor a = nodes[static_cast<size_t>(pick) % nodes.size()];
      const at::Tensor& b = nodes.back();
      switch (kind) {
        case 0:
          nodes.push_back(a * b);
          break;
        case 1:
          nodes.push_back((a + b).tanh());
          break;
        case 2:
          nodes.push_back(at::cat({a, b}).narrow(0, 128, 256).sin());
          break;
        case 3:
          nodes.push_back((b * 0.5).sigmoid_());
          break;
        case 4:
          nodes.push_back(at::dropout(b, 0.25, true));
          break;
        default:
          nodes.push_back(b.view({16, 16}).t().reshape({256}).cos());
      }
    }
    return nodes.back() * 1.0;
  };
  at::manual_seed(5);
  const at::Tensor plain = fn(x);
  at::manual_seed(6);
  const auto budget = *rc::gen::inRange<int64_t>(0, 1 << 16);
  const GraphPlan plan = plan_graph_within(budget, fn, x);
  RC_ASSERT(plan.fits == (plan.peak_bytes <= budget));
  at::manual_seed(5);
  const at::Tensor out = checkpoint_graph(plan, fn, x);
  RC_ASSERT(at::equal(plain, out));
  const auto expected = grad({plain.sum()}, {x}, {}, false, false, true)[0];
  const auto got = grad({out.sum()}, {x}, {}, false, false, true)[0];
  RC_ASSERT(expected.defined() == got.defined());
  RC_ASSERT(!got.defined() || at::equal(expected, got));
}

}  // namespace
}  // namespace remat
