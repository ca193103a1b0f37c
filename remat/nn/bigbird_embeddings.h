// BigBird's embeddings: words, positions and token types.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "remat/nn/bigbird_config.h"
#include "remat/nn/layers.h"

namespace remat::nn {

struct BigBirdEmbeddings {
  // The configuration must outlive this object.
  BigBirdEmbeddings(const BigBirdConfig& config, const WeightInit& init);

  // [batch, length] both -> [batch, length, hidden]. The seed is the dropout's;
  // dropout 0: none.
  at::Tensor forward(const at::Tensor& input_ids,
                     const at::Tensor& token_type_ids, double dropout,
                     uint64_t seed) const;
  void add_to(NamedParameters& parameters, const std::string& name) const;

  const BigBirdConfig& config;
  at::Tensor words;        // [vocabulary, hidden]
  at::Tensor positions;    // [max_position_embeddings, hidden]
  at::Tensor token_types;  // [type_vocab_size, hidden]
  LayerNorm norm;
};

}  // namespace remat::nn
