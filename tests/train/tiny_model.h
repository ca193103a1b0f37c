// A small BigBird with dropout, and texts that it can learn to tell apart.
#pragma once

#include <cstdint>
#include <random>

#include "remat/data/batches.h"
#include "remat/nn/bigbird.h"

namespace remat::train {

constexpr int64_t kTinyVocabulary = 60;

inline nn::BigBirdConfig tiny_config(int64_t layers = 3) {
  nn::BigBirdConfig config;
  config.vocab_size = kTinyVocabulary;
  config.hidden_size = 32;
  config.num_hidden_layers = layers;
  config.num_attention_heads = 2;
  config.intermediate_size = 64;
  config.max_position_embeddings = 256;
  config.block_size = 16;
  config.num_random_blocks = 2;
  config.sep_token_id = 5;
  config.labels = {"even", "odd"};
  return config;
}

// Tokens of an even text are mostly even, of an odd one mostly odd.
inline data::Dataset tiny_dataset(int64_t examples, int64_t shortest,
                                  int64_t longest, uint32_t seed = 7) {
  std::mt19937 random(seed);
  data::Dataset dataset;
  for (int64_t i = 0; i < examples; ++i) {
    data::Example example;
    example.label = i % 2;
    const int64_t length =
        shortest + static_cast<int64_t>(random() % (longest - shortest + 1));
    for (int64_t j = 0; j < length; ++j) {
      const int64_t pair = 3 + static_cast<int64_t>(random() % 26);
      const bool is_noise = random() % 8 == 0;
      example.ids.push_back(pair * 2 +
                            (is_noise ? 1 - example.label : example.label));
    }
    dataset.examples.push_back(example);
  }
  return dataset;
}

}  // namespace remat::train
