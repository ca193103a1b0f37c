// Held bytes, counted: what a recomputing model keeps, and for how long; case
// 28 of the field among it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "remat/memory/meter.h"
#include "remat/runtime/checkpoint.h"

namespace remat {
namespace {

constexpr int64_t kMiB = 1 << 20;

at::Tensor input() { return at::full({kMiB / 4}, 0.5f).requires_grad_(); }

at::Tensor tanh_chain(at::Tensor x, int layers) {
  for (int i = 0; i < layers; ++i) {
    x = x.tanh();
  }
  return x;
}

TEST(Memory, APlainRunKeepsEveryValue) {
  const at::Tensor x = input();
  const MemoryMeter meter;
  const at::Tensor y = tanh_chain(x, 8).sum();
  EXPECT_GE(meter.live_bytes(), 8 * kMiB);
}

TEST(Memory, ARegionKeepsItsInputOnly) {
  const at::Tensor x = input();
  const MemoryMeter meter;
  const at::Tensor y =
      checkpoint([](const at::Tensor& t) { return tanh_chain(t, 8); }, x).sum();
  EXPECT_LT(meter.live_bytes(), kMiB / 16);
  EXPECT_NEAR(y.item<double>() / (kMiB / 4), 0.32581664879605604, 1e-5);
}

TEST(Memory, RecomputedValuesGoOneByOneAlsoWithARetainedGraph) {
  for (const bool retain : {false, true}) {
    const at::Tensor x = input();
    const MemoryMeter meter;
    std::vector<int64_t> live;
    const at::Tensor y = checkpoint(
                             [&](const at::Tensor& t) {
                               at::Tensor value = t;
                               for (int i = 0; i < 8; ++i) {
                                 value = value.tanh();
                                 if (!is_recomputing()) {
                                   value.register_hook([&](const at::Tensor&) {
                                     live.push_back(meter.live_bytes());
                                   });
                                 }
                               }
                               return value;
                             },
                             x)
                             .sum();
    torch::autograd::grad({y}, {x}, {}, retain);
    ASSERT_EQ(live.size(), 8u);
    // live[0] is before the recomputation; from then on one tanh less each.
    for (size_t i = 2; i < live.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(live[i - 1] - live[i]), kMiB, kMiB / 16)
          << "retain " << retain << ", layer " << i;
    }
    EXPECT_LT(meter.live_bytes(), kMiB / 16) << "after backward";
  }
}

// The promise in bytes: one activation a layer, and the inner values of one.
TEST(Memory, AStackHoldsOneActivationALayerAndOneLayersInnerValues) {
  constexpr int kLayers = 6, kInner = 5;
  const auto layer = [](const at::Tensor& t) { return tanh_chain(t, kInner); };
  const auto peak = [&](bool recompute) {
    const at::Tensor x = input();
    const MemoryMeter meter;
    at::Tensor y = x;
    for (int i = 0; i < kLayers; ++i) {
      y = recompute ? checkpoint(layer, y) : layer(y);
    }
    torch::autograd::grad({y.sum()}, {x});
    return meter.peak_bytes();
  };
  // Two gradients are alive in a backward step, and one expanded sum.
  constexpr int64_t kGradients = 3 * kMiB;
  EXPECT_LE(peak(true), (kLayers + kInner) * kMiB + kGradients);
  EXPECT_GE(peak(false), kLayers * kInner * kMiB);
}

TEST(Memory, NestedRegionsHoldLess) {
  constexpr int kLayers = 16;
  const auto peak = [&](int group) {
    const at::Tensor x = input();
    const MemoryMeter meter;
    const auto layer = [](const at::Tensor& t) { return tanh_chain(t, 4); };
    at::Tensor y = x;
    for (int first = 0; first < kLayers; first += group) {
      y = checkpoint(
          [&](const at::Tensor& t) {
            at::Tensor value = t;
            for (int i = 0; i < group; ++i) {
              value = group == 1 ? layer(value) : checkpoint(layer, value);
            }
            return value;
          },
          y);
    }
    torch::autograd::grad({y.sum()}, {x});
    return meter.peak_bytes();
  };
  // 16 + 4 values against 4 + 4 + 4.
  EXPECT_LE(peak(4), peak(1) - 6 * kMiB);
}

TEST(Memory, NothingIsLeftWhenBackwardFails) {
  const at::Tensor x = input();
  const MemoryMeter meter;
  {
    const at::Tensor inner = x.exp();
    inner.register_hook([](const at::Tensor&) -> at::Tensor {
      throw std::runtime_error("stop here");
    });
    const at::Tensor y =
        checkpoint([](const at::Tensor& t) { return tanh_chain(t, 4); }, inner)
            .sum();
    const int64_t before = meter.live_bytes();
    EXPECT_THROW(torch::autograd::grad({y}, {x}, {}, true), std::runtime_error);
    EXPECT_LE(meter.live_bytes(), before + kMiB / 16);
  }
  EXPECT_LT(meter.live_bytes(), kMiB / 16);
}

}  // namespace
}  // namespace remat
