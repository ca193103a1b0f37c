#include "remat/runtime/recompute_group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "remat/base/error.h"
#include "remat/memory/meter.h"
#include "remat/runtime/checkpoint.h"

namespace remat {
namespace {

using torch::autograd::grad;

TEST(RecomputeGroup, BackwardsShareOneRecomputation) {
  const at::Tensor x = at::randn({1000}, at::kDouble).requires_grad_();
  int runs = 0;
  const auto two = [&](const at::Tensor& t) {
    ++runs;
    return std::make_pair(t.sin().exp(), t.cos().exp());
  };
  const auto plain = two(x);
  const at::Tensor first = grad({plain.first.sum()}, {x})[0];
  const at::Tensor second = grad({plain.second.sum()}, {x})[0];
  for (const bool grouped : {true, false}) {
    runs = 0;
    const auto [a, b] = checkpoint(two, x);
    std::optional<RecomputeGroup> group;
    if (grouped) {
      group.emplace();
    }
    EXPECT_TRUE(at::equal(grad({a.sum()}, {x})[0], first));
    EXPECT_TRUE(at::equal(grad({b.sum()}, {x})[0], second));
    EXPECT_EQ(runs, grouped ? 2 : 3);
  }
}

TEST(RecomputeGroup, KeepsWhatIsLeftUntilItsEndOnly) {
  const at::Tensor x = at::randn({1000}, at::kDouble).requires_grad_();
  MemoryMeter meter;
  const auto [a, b] = checkpoint(
      [](const at::Tensor& t) {
        return std::make_pair(t.sin().exp(), t.cos().exp());
      },
      x);
  const int64_t before = meter.live_bytes();
  {
    const RecomputeGroup group;
    grad({a.sum()}, {x});
    EXPECT_GT(meter.live_bytes(), before);
  }
  EXPECT_EQ(meter.live_bytes(), before);
  grad({b.sum()}, {x});
}

// A value that was used up is computed again.
TEST(RecomputeGroup, OverlappingBackwardsRecompute) {
  const at::Tensor x = at::randn({10}, at::kDouble).requires_grad_();
  int runs = 0;
  const at::Tensor y = checkpoint(
                           [&](const at::Tensor& t) {
                             ++runs;
                             return t.sin().exp();
                           },
                           x)
                           .sum();
  const RecomputeGroup group;
  const at::Tensor first = grad({y}, {x}, {}, true)[0];
  EXPECT_TRUE(at::equal(grad({y}, {x})[0], first));
  EXPECT_EQ(runs, 3);
}

TEST(RecomputeGroup, DoesNotNest) {
  const RecomputeGroup group;
  EXPECT_THROW(const RecomputeGroup inner, UsageError);
}

// Which scope counts, and when it is asked: at the forward.
TEST(EarlyStopScope, WinsOverTheCall) {
  const at::Tensor x = at::randn({4}, at::kDouble).requires_grad_();
  for (const bool scope : {true, false}) {
    int ends = 0;
    at::Tensor y;
    {
      const EarlyStopScope outer(!scope);
      const EarlyStopScope inner(scope);
      y = checkpoint(
          CheckpointOptions().early_stop(!scope),
          [&ends](const at::Tensor& t) {
            const at::Tensor z = t.sin().exp() + 1;
            ++ends;
            return z;
          },
          x);
    }
    grad({y.sum()}, {x});
    EXPECT_EQ(ends, scope ? 1 : 2);
  }
}

}  // namespace
}  // namespace remat
