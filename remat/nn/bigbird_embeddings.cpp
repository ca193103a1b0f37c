#include "remat/nn/bigbird_embeddings.h"

#include <ATen/ATen.h>

#include <cmath>

#include "remat/runtime/dropout.h"

namespace remat::nn {

BigBirdEmbeddings::BigBirdEmbeddings(const BigBirdConfig& config,
                                     const WeightInit& init)
    : config(config),
      words(make_embedding(init, config.vocab_size, config.hidden_size,
                           config.pad_token_id)),
      positions(make_embedding(init, config.max_position_embeddings,
                               config.hidden_size)),
      token_types(
          make_embedding(init, config.type_vocab_size, config.hidden_size)),
      norm(config.hidden_size, config.layer_norm_eps) {}

at::Tensor BigBirdEmbeddings::forward(const at::Tensor& input_ids,
                                      const at::Tensor& token_type_ids,
                                      double dropout, uint64_t seed) const {
  at::Tensor x = at::embedding(words, input_ids, config.pad_token_id);
  if (config.rescale_embeddings) {
    x = x * std::sqrt(static_cast<double>(config.hidden_size));
  }
  x = x + at::embedding(token_types, token_type_ids);
  x = x + positions.slice(0, 0, input_ids.size(1));
  return norm(stateless_dropout(x, dropout, seed));
}

void BigBirdEmbeddings::add_to(NamedParameters& parameters,
                               const std::string& name) const {
  parameters.emplace_back(name + ".word_embeddings.weight", words);
  parameters.emplace_back(name + ".position_embeddings.weight", positions);
  parameters.emplace_back(name + ".token_type_embeddings.weight", token_types);
  norm.add_to(parameters, name + ".LayerNorm");
}

}  // namespace remat::nn
