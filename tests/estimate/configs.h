// Configurations of known models, and what an error says.
#pragma once

#include <functional>
#include <string>

#include "remat/base/error.h"
#include "remat/estimate/model.h"

namespace remat::estimate {

// As published with the weights (fields that change no size left out).
inline constexpr const char* kBertBase = R"({"model_type": "bert",
 "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12,
 "num_attention_heads": 12, "intermediate_size": 3072, "hidden_act": "gelu",
 "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
 "max_position_embeddings": 512, "type_vocab_size": 2})";

inline constexpr const char* kBigBirdBase = R"({"model_type": "big_bird",
 "vocab_size": 50358, "hidden_size": 768, "num_hidden_layers": 12,
 "num_attention_heads": 12, "intermediate_size": 3072,
 "hidden_act": "gelu_new", "hidden_dropout_prob": 0.1,
 "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 4096,
 "type_vocab_size": 2, "attention_type": "block_sparse", "block_size": 64,
 "num_random_blocks": 3, "use_bias": true})";

inline constexpr const char* kGpt2 = R"({"model_type": "gpt2",
 "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12,
 "n_head": 12, "n_inner": null, "activation_function": "gelu_new",
 "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1})";

inline Model model_of(const char* config) {
  return model_from_config(config, "config.json");
}

// The text with one part replaced; the part must be there.
inline std::string replaced(std::string text, const std::string& part,
                            const std::string& other) {
  const size_t at = text.find(part);
  if (at == std::string::npos) {
    throw Error("no " + part);
  }
  return text.replace(at, part.size(), other);
}

inline std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace remat::estimate
