// One encoder layer of BigBird, layer norm after each half (post-LN).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "remat/nn/bigbird_attention.h"
#include "remat/nn/bigbird_config.h"
#include "remat/nn/layers.h"

namespace remat::nn {

// What one layer needs of one forward beside its input.
struct LayerContext {
  AttentionBatch batch;
  std::shared_ptr<const kernels::BlockLayout> layout;
  double hidden_dropout = 0;  // 0 in evaluation
  uint64_t seed = 0;          // all masks of the layer derive from it
};

struct BigBirdLayer {
  BigBirdLayer(const BigBirdConfig& config, const WeightInit& init);

  // The halves, one after the other: [batch, length, hidden] -> the same.
  // Functions of their arguments and the parameters alone, so that they can be
  // recomputed.
  at::Tensor attention(const at::Tensor& x, const LayerContext& context) const;
  at::Tensor feed_forward(const at::Tensor& x,
                          const LayerContext& context) const;

  void add_to(NamedParameters& parameters, const std::string& name) const;

  int64_t heads;
  std::string hidden_act;
  Linear query, key, value, attention_dense;
  LayerNorm attention_norm;
  Linear intermediate_dense, output_dense;
  LayerNorm output_norm;

 private:
  at::Tensor drop(const at::Tensor& x, const LayerContext& context,
                  uint64_t site) const;
};

}  // namespace remat::nn
