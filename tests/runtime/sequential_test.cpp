#include "remat/runtime/sequential.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "remat/base/error.h"
#include "remat/memory/meter.h"

namespace remat {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using torch::autograd::grad;

TEST(LayerSelection, EveryNthIsTheFirstAndEachNthAfter) {
  EXPECT_THAT(every_nth_layer(5, 2),
              ElementsAre(true, false, true, false, true));
  EXPECT_THAT(every_nth_layer(3, 1), ElementsAre(true, true, true));
  EXPECT_THAT(every_nth_layer(3, 9), ElementsAre(true, false, false));
  EXPECT_TRUE(every_nth_layer(0, 1).empty());
  EXPECT_THROW(every_nth_layer(3, 0), UsageError);
  EXPECT_THROW(every_nth_layer(-1, 1), UsageError);
}

TEST(LayerSelection, ListedLayersAreChecked) {
  EXPECT_THAT(listed_layers(4, {3, 0}), ElementsAre(true, false, false, true));
  EXPECT_THROW(listed_layers(4, {4}), UsageError);
  EXPECT_THROW(listed_layers(4, {-1}), UsageError);
  EXPECT_THROW(listed_layers(4, {1, 1}), UsageError);
}

TEST(LayerSelection, EqualSegmentsAndTheRest) {
  EXPECT_THAT(equal_segments(10, 3),
              ElementsAre(Pair(0, 3), Pair(3, 6), Pair(6, 10)));
  EXPECT_THAT(equal_segments(3, 3),
              ElementsAre(Pair(0, 1), Pair(1, 2), Pair(2, 3)));
  EXPECT_THROW(equal_segments(3, 4), UsageError);
  EXPECT_THROW(equal_segments(3, 0), UsageError);
  EXPECT_THROW(equal_segments(0, 1), UsageError);
  EXPECT_EQ(square_root_segments(1000), 32);
  EXPECT_EQ(square_root_segments(0), 1);
}

using Layer = std::function<at::Tensor(const at::Tensor&)>;

std::vector<Layer> counted_layers(std::vector<int>& calls) {
  std::vector<Layer> layers;
  for (size_t i = 0; i < calls.size(); ++i) {
    layers.emplace_back([&calls, i](const at::Tensor& t) {
      ++calls[i];
      return 2 * t + 0.1 * t.sin();
    });
  }
  return layers;
}

// Case 24 of the field, Megatron-LM#290.
TEST(CheckpointSequential, TenLayersInThreeSegments) {
  std::vector<int> calls(10, 0);
  const at::Tensor x = at::tensor({0.1}, at::kDouble).requires_grad_();
  const at::Tensor y = checkpoint_sequential(counted_layers(calls), 3, x);
  EXPECT_EQ(calls, std::vector<int>(10, 1));
  EXPECT_NEAR(y.item<double>(), 126.07565879880157, 1e-10);
  EXPECT_NEAR(grad({y}, {x})[0].item<double>(), 1206.388386982438, 1e-9);
  EXPECT_THAT(calls, ElementsAre(2, 2, 2, 2, 2, 2, 1, 1, 1, 1));
  EXPECT_THROW(checkpoint_sequential(counted_layers(calls), 11, x), UsageError);
  EXPECT_THROW(checkpoint_sequential(counted_layers(calls), 0, x), UsageError);
}

TEST(CheckpointLayers, RunsTheChosenTwice) {
  std::vector<int> calls(5, 0);
  const at::Tensor x = at::tensor({0.1}, at::kDouble).requires_grad_();
  const at::Tensor y =
      checkpoint_layers(counted_layers(calls), every_nth_layer(5, 2), x);
  grad({y}, {x});
  EXPECT_THAT(calls, ElementsAre(2, 1, 2, 1, 2));
  EXPECT_THROW(
      checkpoint_layers(counted_layers(calls), every_nth_layer(4, 2), x),
      UsageError);
}

RC_GTEST_PROP(CheckpointSequential, GradientsEqualThePlainOnes, ()) {
  const auto count = *rc::gen::inRange<int64_t>(1, 20);
  const auto segments = *rc::gen::inRange<int64_t>(1, count + 1);
  std::vector<int> calls(static_cast<size_t>(count), 0);
  const auto layers = counted_layers(calls);
  const at::Tensor x = at::randn({3}, at::kDouble).requires_grad_();
  const auto gradient = [&x](const at::Tensor& y) {
    return grad({y.sum()}, {x})[0];
  };
  at::Tensor y = x;
  for (const Layer& layer : layers) {
    y = layer(y);
  }
  const at::Tensor plain = gradient(y);
  RC_ASSERT(
      at::equal(gradient(checkpoint_sequential(layers, segments, x)), plain));
  std::fill(calls.begin(), calls.end(), 0);
  RC_ASSERT(at::equal(gradient(checkpoint_nested(layers, x)), plain));
  // The layer itself, and once for each region around it.
  const int most =
      2 + static_cast<int>(std::ceil(std::log2(static_cast<double>(count))));
  for (const int runs : calls) {
    RC_ASSERT(runs <= most);
  }
}

// A chain of 1,000 layers: peaks in units of what one layer saves.
TEST(CheckpointSequential, PeakOfAThousandLayers) {
  constexpr int64_t kLayers = 1000;
  constexpr int64_t kElements = 4096;
  // A layer saves two tensors of its input's size: what exp and tanh return.
  const std::vector<Layer> layers(
      kLayers, [](const at::Tensor& t) { return t.sin().exp().tanh(); });
  const at::Tensor x = at::randn({kElements}).requires_grad_();
  constexpr int64_t kTensor = kElements * 4;
  constexpr int64_t kSaved = 2 * kTensor;
  std::vector<at::Tensor> gradients;
  const auto peak = [&](const auto& run) {
    MemoryMeter meter;
    const at::Tensor y = run();
    gradients.push_back(grad({y.sum()}, {x})[0]);
    return meter.peak_bytes();
  };
  const int64_t plain = peak([&] {
    at::Tensor y = x;
    for (const Layer& layer : layers) {
      y = layer(y);
    }
    return y;
  });
  const int64_t segments = peak([&] {
    return checkpoint_sequential(layers, square_root_segments(kLayers), x);
  });
  const int64_t nested = peak([&] { return checkpoint_nested(layers, x); });
  EXPECT_TRUE(at::equal(gradients[0], gradients[1]));
  EXPECT_TRUE(at::equal(gradients[0], gradients[2]));
  // The constant: gradients and temporaries of one operation.
  constexpr int64_t kConstant = 8 * kTensor;
  const auto root = std::sqrt(static_cast<double>(kLayers));
  RecordProperty("plain_bytes", std::to_string(plain));
  RecordProperty("segments_bytes", std::to_string(segments));
  RecordProperty("nested_bytes", std::to_string(nested));
  EXPECT_GE(plain, kLayers * kSaved);
  EXPECT_LE(segments, static_cast<int64_t>(2 * root * kSaved) + kConstant);
  EXPECT_LE(nested, segments / 4);
}

}  // namespace
}  // namespace remat
