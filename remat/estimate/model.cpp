#include "remat/estimate/model.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "remat/base/error.h"
#include "remat/base/file.h"
#include "remat/base/json.h"
#include "remat/base/suggest.h"

namespace remat::estimate {
namespace {

constexpr std::string_view kOperation = "config";

// More than any model has; products of three of them cannot overflow.
constexpr int64_t kMaxSize = int64_t{1} << 20;
constexpr int64_t kMaxPositions = int64_t{1} << 30;
constexpr double kMaxParameters = 1e12;

constexpr std::array<std::string_view, 3> kFamilies{"big_bird", "bert", "gpt2"};
constexpr std::array<std::string_view, 3> kHeads{"classification",
                                                 "language-model", "none"};

constexpr std::array<std::string_view, 7> kActivations{
    "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh",
    "relu", "tanh",     "silu"};

class Reader {
 public:
  Reader(std::string_view source, const nlohmann::json& value)
      : object_(kOperation, source, value), value_(value) {}

  const JsonObject& object() const { return object_; }

  int64_t size(std::string_view name, int64_t most = kMaxSize) const {
    if (!object_.has(name)) {
      object_.refuse(name, "an estimate needs it; give a complete config.json");
    }
    return checked(name, object_.integer(name, 0), 1, most);
  }

  int64_t size_or(std::string_view name, int64_t otherwise,
                  int64_t least = 1) const {
    return checked(name, object_.integer(name, otherwise), least, kMaxSize);
  }

  double dropout(std::string_view name, double otherwise) const {
    const double value = object_.number(name, otherwise);
    if (!(value >= 0 && value < 1)) {
      object_.refuse(name,
                     "a dropout probability must be at least 0 and below 1");
    }
    return value;
  }

  std::string activation(std::string_view name,
                         std::string_view otherwise) const {
    const std::string text = object_.string(name, otherwise);
    std::string known;
    for (const std::string_view candidate : kActivations) {
      if (text == candidate) {
        return text;
      }
      known += str(known.empty() ? "" : ", ", candidate);
    }
    object_.refuse(name, str("it must be one of ", known));
  }

  // Given as a map from class to name, or as a number; else two.
  int64_t labels() const {
    const auto map = value_.find("id2label");
    if (map != value_.end() && map->is_object() && !map->empty()) {
      return checked("id2label", static_cast<int64_t>(map->size()), 1,
                     kMaxSize);
    }
    return size_or("num_labels", 2);
  }

 private:
  int64_t checked(std::string_view name, int64_t value, int64_t least,
                  int64_t most) const {
    if (value < least || value > most) {
      object_.refuse(name, str("it must be from ", least, " to ", most));
    }
    return value;
  }

  JsonObject object_;
  const nlohmann::json& value_;
};

Family read_family(const JsonObject& object) {
  const std::string text = object.string("model_type", "");
  for (size_t i = 0; i < kFamilies.size(); ++i) {
    if (text == kFamilies[i]) {
      return static_cast<Family>(i);
    }
  }
  object.refuse("model_type",
                str("big_bird, bert and gpt2 can be estimated",
                    did_you_mean(text, {kFamilies.begin(), kFamilies.end()}),
                    " Of another model, give the chain itself (--chain)."));
}

void read_encoder(const Reader& reader, Model& model) {
  const JsonObject& object = reader.object();
  model.hidden_size = reader.size("hidden_size");
  model.layers = reader.size("num_hidden_layers", int64_t{1} << 16);
  model.attention_heads = reader.size("num_attention_heads");
  model.intermediate_size = reader.size("intermediate_size");
  model.max_positions = reader.size("max_position_embeddings", kMaxPositions);
  model.token_types = reader.size_or("type_vocab_size", 2);
  model.hidden_dropout = reader.dropout("hidden_dropout_prob", 0.1);
  model.attention_dropout = reader.dropout("attention_probs_dropout_prob", 0.1);
  if (object.string("position_embedding_type", "absolute") != "absolute") {
    object.refuse("position_embedding_type", "it must be \"absolute\"");
  }
  if (object.boolean("is_decoder", false)) {
    object.refuse("is_decoder", "only encoders are known; set it to false");
  }
  if (model.family == Family::kBert) {
    model.activation = reader.activation("hidden_act", "gelu");
    return;
  }
  model.activation = reader.activation("hidden_act", "gelu_new");
  model.has_projection_bias = object.boolean("use_bias", true);
  const std::string attention = object.string("attention_type", "block_sparse");
  if (attention != "block_sparse" && attention != "original_full") {
    object.refuse("attention_type",
                  "it must be block_sparse or original_full; others are for "
                  "tests");
  }
  model.is_sparse = attention == "block_sparse";
  model.block_size = reader.size_or("block_size", 64);
  model.random_blocks = reader.size_or("num_random_blocks", 3, 0);
}

void read_gpt2(const Reader& reader, Model& model) {
  model.head = Head::kLanguageModel;
  model.hidden_size = reader.size("n_embd");
  model.layers = reader.size("n_layer", int64_t{1} << 16);
  model.attention_heads = reader.size("n_head");
  model.intermediate_size = reader.size_or("n_inner", 4 * model.hidden_size);
  model.max_positions = reader.size("n_positions", kMaxPositions);
  model.activation = reader.activation("activation_function", "gelu_new");
  // Three of them in Hugging Face; that of the residuals stands for that of
  // the embeddings.
  model.hidden_dropout = reader.dropout("resid_pdrop", 0.1);
  model.attention_dropout = reader.dropout("attn_pdrop", 0.1);
}

void check_sizes(const Reader& reader, const Model& model) {
  const JsonObject& object = reader.object();
  const bool is_gpt2 = model.family == Family::kGpt2;
  if (model.hidden_size % model.attention_heads != 0) {
    object.refuse(
        is_gpt2 ? "n_head" : "num_attention_heads",
        str("it must divide the width, which is ", model.hidden_size));
  }
  const double width = static_cast<double>(model.hidden_size);
  const double inner = static_cast<double>(model.intermediate_size);
  const double numbers =
      width * static_cast<double>(model.vocab_size + model.max_positions +
                                  model.token_types) +
      static_cast<double>(model.layers) *
          (4 * width * width + 2 * width * inner);
  if (numbers > kMaxParameters) {
    object.refuse(is_gpt2 ? "n_embd" : "hidden_size",
                  "with the other sizes the model has more than 10^12 "
                  "parameters");
  }
}

}  // namespace

std::string_view name_of(Family family) {
  return kFamilies[static_cast<size_t>(family)];
}

std::string_view name_of(Head head) {
  return kHeads[static_cast<size_t>(head)];
}

Head parse_head(std::string_view where, std::string_view text) {
  for (size_t i = 0; i < kHeads.size(); ++i) {
    if (text == kHeads[i]) {
      return static_cast<Head>(i);
    }
  }
  fail_usage("plan", where, " is ", text,
             "; it must be classification, language-model or none",
             did_you_mean(text, {kHeads.begin(), kHeads.end()}));
}

Model model_from_config(std::string_view json, std::string_view source) {
  const nlohmann::json value = parse_json(kOperation, source, json);
  const Reader reader(source, value);
  Model model;
  model.family = read_family(reader.object());
  model.vocab_size = reader.size("vocab_size");
  if (model.family == Family::kGpt2) {
    read_gpt2(reader, model);
  } else {
    read_encoder(reader, model);
  }
  model.labels = reader.labels();
  model.ties_embeddings = reader.object().boolean("tie_word_embeddings", true);
  check_sizes(reader, model);
  return model;
}

Model read_model(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  const auto file = is_folder ? path / "config.json" : path;
  return model_from_config(read_file(file), file.string());
}

}  // namespace remat::estimate
