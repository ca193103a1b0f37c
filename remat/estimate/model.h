// What an estimate knows of a model: the sizes in a Hugging Face config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace remat::estimate {

enum class Family { kBigBird, kBert, kGpt2 };

// What turns the last hidden state into a loss.
enum class Head {
  kClassification,  // a label for each text
  kLanguageModel,   // a token at each position, the weights tied or not
  kNone,            // the bare model, with its pooler where it has one
};

struct Model {
  Family family = Family::kBert;
  Head head = Head::kClassification;

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t layers = 0;
  int64_t attention_heads = 0;
  int64_t intermediate_size = 0;
  int64_t max_positions = 0;
  int64_t token_types = 0;  // BERT and BigBird
  int64_t labels = 2;
  std::string activation;
  double hidden_dropout = 0;        // after the embeddings and in each layer
  double attention_dropout = 0;     // on the probabilities of full attention
  bool has_projection_bias = true;  // of query, key and value
  bool ties_embeddings = true;

  // BigBird: block-sparse, unless the configuration says original_full.
  bool is_sparse = false;
  int64_t block_size = 0;
  int64_t random_blocks = 0;

  int64_t head_size() const { return hidden_size / attention_heads; }
};

// "big_bird", "bert", "gpt2": the model_type of config.json.
std::string_view name_of(Family family);

// "classification", "language-model", "none". parse_head throws UsageError
// "[plan] `where` is TEXT; ..." for another name.
std::string_view name_of(Head head);
Head parse_head(std::string_view where, std::string_view text);

// Reads config.json text (source: its name in errors). The head is what remat
// train trains: classification, and for GPT-2 the language model. Dropouts,
// activation and the like may be absent and are then Hugging Face's defaults;
// sizes may not. Throws UsageError that names source, field, value and remedy:
// an unknown model_type, a missing field, sizes below 1 or absurd, a head count
// that does not divide the width.
Model model_from_config(std::string_view json, std::string_view source);

// A config.json, or the folder it is in.
Model read_model(const std::filesystem::path& path);

// Numbers in the weights.
struct Parameters {
  int64_t embeddings = 0;
  int64_t layer = 0;  // one of them
  int64_t head = 0;   // behind the last layer, final norms and poolers included
  // Of `head`, those that the loss does not depend on: they get no gradient.
  int64_t unused = 0;
  int64_t total = 0;

  int64_t trained() const { return total - unused; }
};

// As Hugging Face's classes: BertModel, BertForSequenceClassification,
// BertForMaskedLM, GPT2Model, GPT2LMHeadModel, ...; BigBird's classifier as
// remat's own, which keeps the pooler.
Parameters count_parameters(const Model& model);

}  // namespace remat::estimate
