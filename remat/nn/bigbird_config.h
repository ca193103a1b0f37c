// The configuration of a BigBird model, as Hugging Face's config.json has it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace remat::nn {

enum class AttentionType { kOriginalFull, kBlockSparse, kSimulatedSparse };

// How the random blocks are drawn in training.
enum class RandomBlocks {
  kNumpy,   // as Hugging Face: numpy's generator, seeded with the layer index
  kPhilox,  // counter-based, over all blocks, seeded with the layer index
};

// Field names and defaults are those of transformers' BigBirdConfig 4.40.
struct BigBirdConfig {
  int64_t vocab_size = 50358;
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t intermediate_size = 3072;
  std::string hidden_act = "gelu_new";  // gelu, gelu_new, gelu_fast, relu, tanh
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;  // original_full only
  int64_t max_position_embeddings = 4096;
  int64_t type_vocab_size = 2;
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;
  bool use_bias = true;
  bool rescale_embeddings = false;
  AttentionType attention_type = AttentionType::kBlockSparse;
  int64_t block_size = 64;
  int64_t num_random_blocks = 3;
  double classifier_dropout = -1;  // below 0: hidden_dropout_prob
  int64_t pad_token_id = 0;
  int64_t bos_token_id = 1;
  int64_t eos_token_id = 2;
  int64_t sep_token_id = 66;
  std::vector<std::string> labels{"LABEL_0", "LABEL_1"};  // by class index

  // Not of Hugging Face; absent means these defaults.
  RandomBlocks random_blocks = RandomBlocks::kNumpy;

  int64_t num_labels() const { return static_cast<int64_t>(labels.size()); }
  int64_t head_size() const { return hidden_size / num_attention_heads; }
};

// Reads config.json text (source: its name in errors). Absent fields take the
// defaults, unknown ones are ignored as Hugging Face does. Throws UsageError
// that names source, field, value and remedy: another model_type, sizes below
// 1, a head count that does not divide the width, dropout outside [0, 1), an
// unknown attention_type or hidden_act, absurd sizes (overflow).
BigBirdConfig parse_bigbird_config(std::string_view json,
                                   std::string_view source);

// Throws UsageError as parse_bigbird_config for a configuration put together
// in code.
void check_bigbird_config(const BigBirdConfig& config, std::string_view source);

// As Hugging Face writes it, with "architectures", "id2label" and "label2id".
// Its own loader knows the attention types original_full and block_sparse.
std::string to_json(const BigBirdConfig& config);

}  // namespace remat::nn
