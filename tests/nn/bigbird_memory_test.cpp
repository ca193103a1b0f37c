// The promise in bytes, on the model itself: beyond what one layer needs, a
// recomputing model holds one activation for each further layer.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "remat/memory/meter.h"
#include "tests/nn/bigbird_test_util.h"

namespace remat::nn {
namespace {

constexpr int64_t kBatch = 2, kLength = 512, kHidden = 64;
constexpr int64_t kActivation =
    kBatch * kLength * kHidden * static_cast<int64_t>(sizeof(float));

BigBirdConfig wide_config(int64_t layers) {
  BigBirdConfig config = tiny_config();
  config.num_hidden_layers = layers;
  config.hidden_size = kHidden;
  config.intermediate_size = 4 * kHidden;
  config.num_attention_heads = 2;
  config.max_position_embeddings = kLength;
  config.hidden_dropout_prob = 0.1;
  return config;
}

struct Peak {
  int64_t bytes;
  std::vector<int64_t> half_runs;
};

// The highest number of live bytes in a step, above weights and gradients.
Peak peak_of_step(int64_t layers, const LayerCheckpointing& checkpointing) {
  BigBirdClassifier model(wide_config(layers));
  randomize_weights(model, 1);
  model.set_checkpointing(checkpointing);
  for (const auto& [name, parameter] : model.named_parameters()) {
    parameter.mutable_grad() = at::zeros_like(parameter);
  }
  const BigBirdInput input = tiny_input(kBatch, kLength, 0);
  const MemoryMeter meter;
  model.forward(input).sum().backward();
  return {meter.peak_bytes(), model.half_runs()};
}

TEST(BigBirdMemory, OneActivationALayerAndOneLayersInnerValues) {
  const Peak one = peak_of_step(1, {});
  for (const int64_t layers : {4, 8}) {
    const Peak plain = peak_of_step(layers, {});
    const Peak recomputed = peak_of_step(layers, {true, 1});
    EXPECT_LE(recomputed.bytes, one.bytes + layers * kActivation);
    // A layer has some ten values of an activation's size or more inside.
    EXPECT_GE(plain.bytes, one.bytes + (layers - 1) * 10 * kActivation);
    EXPECT_EQ(recomputed.half_runs, std::vector<int64_t>(2 * layers, 2));
    EXPECT_EQ(plain.half_runs, std::vector<int64_t>(2 * layers, 1));
  }
}

TEST(BigBirdMemory, EverySecondLayerIsInBetween) {
  const Peak every = peak_of_step(8, {true, 1});
  const Peak second = peak_of_step(8, {true, 2});
  const Peak plain = peak_of_step(8, {});
  EXPECT_LT(every.bytes, second.bytes);
  EXPECT_LT(second.bytes, plain.bytes);
  EXPECT_EQ(second.half_runs, (std::vector<int64_t>{2, 2, 1, 1, 2, 2, 1, 1, 2,
                                                    2, 1, 1, 2, 2, 1, 1}));
}

}  // namespace
}  // namespace remat::nn
