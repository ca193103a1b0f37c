// What remat/estimate says of BigBird on paper, against what autograd keeps.
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remat/estimate/device.h"
#include "remat/estimate/estimate.h"
#include "remat/estimate/stages.h"
#include "remat/memory/meter.h"
#include "remat/nn/bigbird_layer.h"
#include "remat/nn/block_layouts.h"
#include "remat/plan/bounds.h"
#include "remat/runtime/print_saved.h"
#include "tests/nn/bigbird_test_util.h"

namespace remat::nn {
namespace {

constexpr int64_t kBatch = 2, kLength = 512;

BigBirdConfig config_of(int64_t layers, double dropout) {
  BigBirdConfig config = tiny_config();
  config.num_hidden_layers = layers;
  config.hidden_size = 64;
  config.intermediate_size = 256;
  config.num_attention_heads = 2;
  config.max_position_embeddings = kLength;
  config.hidden_dropout_prob = dropout;
  config.attention_probs_dropout_prob = 0.1;
  return config;
}

estimate::Model model_of(const BigBirdConfig& config) {
  return estimate::model_from_config(to_json(config), "config.json");
}

// Bytes that a layer's forward leaves for its backward, its output included.
int64_t measured_saved_bytes(const BigBirdConfig& config, bool is_sparse,
                             at::ScalarType dtype) {
  const BigBirdLayer layer(config, WeightInit{});
  NamedParameters parameters;
  layer.add_to(parameters, "layer");
  for (const auto& [name, parameter] : parameters) {
    parameter.set_data(parameter.detach().to(dtype));
  }
  BlockLayouts layouts(config);
  LayerContext context;
  // No padding: neither bias of keys nor scale of queries, which all layers
  // share.
  context.batch.type =
      is_sparse ? AttentionType::kBlockSparse : AttentionType::kOriginalFull;
  if (!is_sparse) {
    context.batch.key_bias = at::zeros({kBatch, kLength}, dtype);
    context.batch.dropout = config.attention_probs_dropout_prob;
  }
  context.layout = is_sparse
                       ? layouts.sparse(0, kLength / config.block_size, true)
                       : layouts.dense(kLength);
  context.hidden_dropout = config.hidden_dropout_prob;
  const at::Tensor x =
      at::randn({kBatch, kLength, config.hidden_size}, at::kFloat)
          .to(dtype)
          .requires_grad_(true);
  int64_t bytes = x.numel() * static_cast<int64_t>(x.element_size());
  for (const SavedTensor& saved : saved_tensors(
           [&](const at::Tensor& input) {
             return layer.feed_forward(layer.attention(input, context),
                                       context);
           },
           x)) {
    // Indices of blocks are left out: a few bytes a block.
    if (saved.kind == SavedKind::kComputed && saved.dtype != "Long") {
      bytes += saved.bytes;
    }
  }
  return bytes;
}

TEST(BigBirdEstimate, ALayerKeepsWhatTheTapeSays) {
  estimate::Shape shape;
  shape.length = kLength;
  shape.batch = kBatch;
  for (const double dropout : {0.0, 0.1}) {
    for (const char* activation : {"gelu_new", "relu"}) {
      SCOPED_TRACE(testing::Message() << dropout << " " << activation);
      BigBirdConfig config = config_of(1, dropout);
      config.hidden_act = activation;
      const estimate::Model model = model_of(config);
      shape.is_sparse = true;
      shape.attention = estimate::AttentionKind::kFused;
      EXPECT_EQ(estimate::layer_tape(model, shape).memory().saved_bytes,
                measured_saved_bytes(config, true, at::kFloat));
      shape.is_sparse = false;
      shape.attention = estimate::AttentionKind::kProbabilities;
      EXPECT_EQ(estimate::layer_tape(model, shape).memory().saved_bytes,
                measured_saved_bytes(config, false, at::kFloat));
    }
  }
}

TEST(BigBirdEstimate, ALayerOfHalvesGathersItsBlocksInFloat) {
  const BigBirdConfig config = config_of(1, 0.1);
  estimate::Shape shape;
  shape.length = kLength;
  shape.batch = kBatch;
  shape.dtype = estimate::Dtype::kBFloat16;
  shape.is_sparse = true;
  shape.attention = estimate::AttentionKind::kGathered;
  shape.attends_in_float = true;
  const int64_t difference =
      estimate::layer_tape(model_of(config), shape).memory().saved_bytes -
      measured_saved_bytes(config, true, at::kBFloat16);
  // Two statistics of each of two norms may be halves on a CPU.
  EXPECT_THAT(difference, testing::AnyOf(0, 2 * 2 * 2 * kBatch * kLength));
}

// The highest number of live bytes in a step, above weights and gradients.
int64_t measured_peak(int64_t layers, const LayerCheckpointing& checkpointing) {
  BigBirdClassifier model(config_of(layers, 0.1));
  model.set_checkpointing(checkpointing);
  for (const auto& [name, parameter] : model.named_parameters()) {
    parameter.mutable_grad() = at::zeros_like(parameter);
  }
  const BigBirdInput input = tiny_input(kBatch, kLength, 0);
  const MemoryMeter meter;
  model.forward(input).sum().backward();
  return meter.peak_bytes();
}

TEST(BigBirdEstimate, TheWholeStepPeaksWhereTheChainSays) {
  estimate::Device cpu;
  cpu.name = "cpu";
  cpu.memory_bytes = int64_t{1} << 33;
  cpu.memory_bytes_per_second = 1e10;
  cpu.flops_per_second[0] = 1e11;
  cpu.is_cpu = true;
  estimate::Workload work;
  work.sequence_length = kLength;
  work.batch_size = kBatch;
  for (const int64_t layers : {2, 6}) {
    const auto made =
        estimate::estimate(model_of(config_of(layers, 0.1)), cpu, work);
    const int64_t estimated =
        plan::keep_all_bytes(made.chain) - made.chain.fixed_bytes;
    const int64_t measured = measured_peak(layers, {});
    EXPECT_NEAR(static_cast<double>(estimated) / static_cast<double>(measured),
                1, 0.04)
        << layers << " layers: " << estimated << " and " << measured;
  }
}

}  // namespace
}  // namespace remat::nn
