#include "remat/nn/bigbird_config.h"

#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "remat/base/error.h"
#include "remat/base/json.h"
#include "remat/base/log.h"

namespace remat::nn {
namespace {

using nlohmann::json;

constexpr std::string_view kOperation = "config";
constexpr std::string_view kModelType = "big_bird";

// More than any model has; products of three of them cannot overflow.
constexpr int64_t kMaxSize = int64_t{1} << 20;
constexpr int64_t kMaxParameters = int64_t{1} << 40;

constexpr std::array<std::pair<std::string_view, AttentionType>, 3>
    kAttentionTypes{{{"original_full", AttentionType::kOriginalFull},
                     {"block_sparse", AttentionType::kBlockSparse},
                     {"simulated_sparse", AttentionType::kSimulatedSparse}}};

constexpr std::array<std::pair<std::string_view, RandomBlocks>, 2>
    kRandomBlocks{
        {{"numpy", RandomBlocks::kNumpy}, {"philox", RandomBlocks::kPhilox}}};

constexpr std::array<std::string_view, 5> kActivations{
    "gelu", "gelu_new", "gelu_fast", "relu", "tanh"};

template <class Value, size_t N>
std::string_view name_of(
    const std::array<std::pair<std::string_view, Value>, N>& table,
    Value value) {
  for (const auto& [name, known] : table) {
    if (known == value) {
      return name;
    }
  }
  fail_usage(kOperation, "no enumerator has the number ",
             static_cast<int>(value));
}

template <class Value, size_t N>
Value read_choice(
    const JsonObject& object, std::string_view field,
    const std::array<std::pair<std::string_view, Value>, N>& table,
    Value otherwise) {
  const std::string text = object.string(field, name_of(table, otherwise));
  std::string known;
  for (const auto& [name, value] : table) {
    if (name == text) {
      return value;
    }
    known += str(known.empty() ? "" : ", ", name);
  }
  object.refuse(field, str("it must be one of ", known));
}

// The labels in the order of their class index.
std::vector<std::string> read_id2label(std::string_view source,
                                       const json& value) {
  if (!value.is_object() || value.empty()) {
    fail_usage(
        kOperation, source, ": id2label is ", value.dump(),
        "; it must be an object such as {\"0\": \"no\", \"1\": \"yes\"}");
  }
  const size_t count = value.size();
  std::vector<std::string> labels(count);
  std::vector<bool> seen(count, false);
  for (const auto& [key, label] : value.items()) {
    size_t index = count;
    if (!key.empty() && key.size() <= 7 &&
        key.find_first_not_of("0123456789") == std::string::npos) {
      index = std::stoul(key);
    }
    if (index >= count || seen[index]) {
      fail_usage(kOperation, source, ": id2label has the key \"", key,
                 "\"; its ", count, " keys must be 0 to ", count - 1);
    }
    if (!label.is_string()) {
      fail_usage(kOperation, source, ": id2label has ", label.dump(),
                 " for class ", index, "; a label must be a string");
    }
    seen[index] = true;
    labels[index] = label.get<std::string>();
  }
  std::map<std::string_view, size_t> classes;
  for (size_t i = 0; i < count; ++i) {
    const auto [other, is_new] = classes.emplace(labels[i], i);
    if (!is_new) {
      fail_usage(kOperation, source, ": id2label has the label \"", labels[i],
                 "\" for the classes ", other->second, " and ", i,
                 "; every class needs a label of its own");
    }
  }
  return labels;
}

std::vector<std::string> numbered_labels(int64_t count) {
  std::vector<std::string> labels;
  for (int64_t i = 0; i < count; ++i) {
    labels.push_back(str("LABEL_", i));
  }
  return labels;
}

std::vector<std::string> read_labels(std::string_view source, const json& value,
                                     const JsonObject& object) {
  const int64_t count = object.integer("num_labels", -1);
  if (object.has("num_labels") && (count < 1 || count > kMaxSize)) {
    object.refuse("num_labels", str("it must be from 1 to ", kMaxSize));
  }
  if (!object.has("id2label")) {
    return numbered_labels(count < 0 ? 2 : count);
  }
  std::vector<std::string> labels = read_id2label(source, value["id2label"]);
  if (count >= 0 && count != static_cast<int64_t>(labels.size())) {
    say_once("config",
             str(source, ": num_labels is ", count, ", but id2label has ",
                 labels.size(), " labels, which counts"));
  }
  return labels;
}

// What would change the numbers, and is not there.
void refuse_unsupported(const JsonObject& object) {
  if (object.string("model_type", kModelType) != kModelType) {
    object.refuse("model_type", str("this is the reader of \"", kModelType,
                                    "\"; give a BigBird model"));
  }
  if (object.boolean("is_decoder", false)) {
    object.refuse("is_decoder",
                  "only the encoder exists here; set it to false");
  }
  if (object.string("position_embedding_type", "absolute") != "absolute") {
    object.refuse("position_embedding_type", "it must be \"absolute\"");
  }
}

class Checker {
 public:
  explicit Checker(std::string_view source) : source_(source) {}

  template <class Value, class... Reason>
  void require(bool holds, std::string_view field, const Value& value,
               const Reason&... reason) const {
    if (!holds) {
      fail_usage(kOperation, source_, ": ", field, " is ", value, "; ",
                 reason...);
    }
  }

  void size(std::string_view field, int64_t value, int64_t least = 1) const {
    require(value >= least && value <= kMaxSize, field, value,
            "it must be from ", least, " to ", kMaxSize);
  }

  void probability(std::string_view field, double value) const {
    require(value >= 0 && value < 1, field, value,
            "a dropout probability must be at least 0 and below 1");
  }

 private:
  std::string_view source_;
};

void check_parameter_count(const BigBirdConfig& c, const Checker& checker) {
  const int64_t embeddings =
      (c.vocab_size + c.max_position_embeddings + c.type_vocab_size) *
      c.hidden_size;
  const int64_t layer =
      c.hidden_size * (4 * c.hidden_size + 2 * c.intermediate_size);
  // Each factor is at most 2^43, so the product is tested before it is made.
  checker.require(
      embeddings <= kMaxParameters && layer <= kMaxParameters &&
          c.num_hidden_layers <= (kMaxParameters - embeddings) / layer,
      "hidden_size", c.hidden_size, "with num_hidden_layers ",
      c.num_hidden_layers, ", intermediate_size ", c.intermediate_size,
      " and vocab_size ", c.vocab_size,
      " the model has more than 2^40 parameters");
}

}  // namespace

void check_bigbird_config(const BigBirdConfig& c, std::string_view source) {
  const Checker checker(source);
  checker.size("vocab_size", c.vocab_size);
  checker.size("hidden_size", c.hidden_size);
  checker.size("num_hidden_layers", c.num_hidden_layers);
  checker.size("num_attention_heads", c.num_attention_heads);
  checker.size("intermediate_size", c.intermediate_size);
  checker.size("max_position_embeddings", c.max_position_embeddings);
  checker.size("type_vocab_size", c.type_vocab_size);
  checker.size("block_size", c.block_size);
  checker.size("num_random_blocks", c.num_random_blocks, 0);
  checker.size("the number of labels", c.num_labels());
  checker.require(c.hidden_size % c.num_attention_heads == 0,
                  "num_attention_heads", c.num_attention_heads,
                  "it must divide hidden_size, which is ", c.hidden_size);
  check_parameter_count(c, checker);
  checker.probability("hidden_dropout_prob", c.hidden_dropout_prob);
  checker.probability("attention_probs_dropout_prob",
                      c.attention_probs_dropout_prob);
  if (c.classifier_dropout >= 0 || std::isnan(c.classifier_dropout)) {
    checker.probability("classifier_dropout", c.classifier_dropout);
  }
  checker.require(std::isfinite(c.layer_norm_eps) && c.layer_norm_eps > 0,
                  "layer_norm_eps", c.layer_norm_eps, "it must be above 0");
  checker.require(
      std::isfinite(c.initializer_range) && c.initializer_range >= 0,
      "initializer_range", c.initializer_range, "it must be 0 or more");
  checker.require(c.pad_token_id >= 0 && c.pad_token_id < c.vocab_size,
                  "pad_token_id", c.pad_token_id,
                  "it must be below vocab_size, which is ", c.vocab_size);
  bool known = false;
  for (const std::string_view name : kActivations) {
    known = known || c.hidden_act == name;
  }
  checker.require(known, "hidden_act", str('"', c.hidden_act, '"'),
                  "it must be one of gelu, gelu_new, gelu_fast, relu, tanh");
}

BigBirdConfig parse_bigbird_config(std::string_view text,
                                   std::string_view source) {
  const json value = parse_json(kOperation, source, text);
  const JsonObject object(kOperation, source, value);
  refuse_unsupported(object);
  BigBirdConfig c;
  const auto integer = [&](std::string_view name, int64_t& field) {
    field = object.integer(name, field);
  };
  const auto number = [&](std::string_view name, double& field) {
    field = object.number(name, field);
  };
  integer("vocab_size", c.vocab_size);
  integer("hidden_size", c.hidden_size);
  integer("num_hidden_layers", c.num_hidden_layers);
  integer("num_attention_heads", c.num_attention_heads);
  integer("intermediate_size", c.intermediate_size);
  c.hidden_act = object.string("hidden_act", c.hidden_act);
  number("hidden_dropout_prob", c.hidden_dropout_prob);
  number("attention_probs_dropout_prob", c.attention_probs_dropout_prob);
  integer("max_position_embeddings", c.max_position_embeddings);
  integer("type_vocab_size", c.type_vocab_size);
  number("initializer_range", c.initializer_range);
  number("layer_norm_eps", c.layer_norm_eps);
  c.use_bias = object.boolean("use_bias", c.use_bias);
  c.rescale_embeddings =
      object.boolean("rescale_embeddings", c.rescale_embeddings);
  c.attention_type =
      read_choice(object, "attention_type", kAttentionTypes, c.attention_type);
  integer("block_size", c.block_size);
  integer("num_random_blocks", c.num_random_blocks);
  number("classifier_dropout", c.classifier_dropout);
  if (object.has("classifier_dropout") && c.classifier_dropout < 0) {
    object.refuse("classifier_dropout",
                  "it must be null, or at least 0 and below 1");
  }
  integer("pad_token_id", c.pad_token_id);
  integer("bos_token_id", c.bos_token_id);
  integer("eos_token_id", c.eos_token_id);
  integer("sep_token_id", c.sep_token_id);
  c.random_blocks =
      read_choice(object, "random_blocks", kRandomBlocks, c.random_blocks);
  c.labels = read_labels(source, value, object);
  check_bigbird_config(c, source);
  return c;
}

std::string to_json(const BigBirdConfig& c) {
  json id2label = json::object(), label2id = json::object();
  for (size_t i = 0; i < c.labels.size(); ++i) {
    id2label[std::to_string(i)] = c.labels[i];
    label2id[c.labels[i]] = i;
  }
  json value{
      {"architectures", json::array({"BigBirdForSequenceClassification"})},
      {"attention_probs_dropout_prob", c.attention_probs_dropout_prob},
      {"attention_type", name_of(kAttentionTypes, c.attention_type)},
      {"block_size", c.block_size},
      {"bos_token_id", c.bos_token_id},
      {"classifier_dropout", nullptr},
      {"eos_token_id", c.eos_token_id},
      {"hidden_act", c.hidden_act},
      {"hidden_dropout_prob", c.hidden_dropout_prob},
      {"hidden_size", c.hidden_size},
      {"id2label", id2label},
      {"initializer_range", c.initializer_range},
      {"intermediate_size", c.intermediate_size},
      {"label2id", label2id},
      {"layer_norm_eps", c.layer_norm_eps},
      {"max_position_embeddings", c.max_position_embeddings},
      {"model_type", kModelType},
      {"num_attention_heads", c.num_attention_heads},
      {"num_hidden_layers", c.num_hidden_layers},
      {"num_random_blocks", c.num_random_blocks},
      {"pad_token_id", c.pad_token_id},
      {"rescale_embeddings", c.rescale_embeddings},
      {"sep_token_id", c.sep_token_id},
      {"transformers_version", "4.40.2"},
      {"type_vocab_size", c.type_vocab_size},
      {"use_bias", c.use_bias},
      {"use_cache", true},
      {"vocab_size", c.vocab_size},
  };
  if (c.classifier_dropout >= 0) {
    value["classifier_dropout"] = c.classifier_dropout;
  }
  // A field of ours: absent where it says what Hugging Face does anyway.
  if (c.random_blocks != RandomBlocks::kNumpy) {
    value["random_blocks"] = name_of(kRandomBlocks, c.random_blocks);
  }
  return value.dump(2) + "\n";
}

}  // namespace remat::nn
