#include "remat/nn/bigbird_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "remat/base/error.h"
#include "remat/base/file.h"

namespace remat::nn {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const json& config) {
  try {
    parse_bigbird_config(config.dump(), "config.json");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(BigBirdConfig, AbsentFieldsTakeTheDefaults) {
  const BigBirdConfig config = parse_bigbird_config("{}", "config.json");
  EXPECT_EQ(config.vocab_size, 50358);
  EXPECT_EQ(config.hidden_size, 768);
  EXPECT_EQ(config.num_hidden_layers, 12);
  EXPECT_EQ(config.hidden_act, "gelu_new");
  EXPECT_EQ(config.layer_norm_eps, 1e-12);
  EXPECT_EQ(config.attention_type, AttentionType::kBlockSparse);
  EXPECT_EQ(config.block_size, 64);
  EXPECT_EQ(config.num_random_blocks, 3);
  EXPECT_LT(config.classifier_dropout, 0);
  EXPECT_EQ(config.random_blocks, RandomBlocks::kNumpy);
  EXPECT_THAT(config.labels, ElementsAre("LABEL_0", "LABEL_1"));
}

TEST(BigBirdConfig, HuggingFaceFileIsRead) {
  const std::string path =
      std::string(REMAT_GOLDEN_DIR) + "/bigbird_cls_train/config.json";
  const BigBirdConfig config = parse_bigbird_config(read_file(path), path);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.num_attention_heads, 2);
  EXPECT_EQ(config.head_size(), 32);
  EXPECT_EQ(config.block_size, 16);
  EXPECT_EQ(config.num_random_blocks, 2);
  EXPECT_EQ(config.max_position_embeddings, 256);
  EXPECT_EQ(config.hidden_dropout_prob, 0.0);
  EXPECT_EQ(config.num_labels(), 3);
}

TEST(BigBirdConfig, UnknownFieldsAndNullsAreIgnored) {
  const BigBirdConfig config = parse_bigbird_config(
      R"({"gradient_checkpointing": false, "dtype": "float32",
          "hidden_size": null, "classifier_dropout": null})",
      "config.json");
  EXPECT_EQ(config.hidden_size, 768);
}

TEST(BigBirdConfig, LabelsComeInTheOrderOfTheirNumbers) {
  json labels;
  for (int i = 0; i < 12; ++i) {
    labels[std::to_string(i)] = "class " + std::to_string(i);
  }
  const BigBirdConfig config = parse_bigbird_config(
      json{{"id2label", labels}, {"num_labels", 5}}.dump(), "config.json");
  EXPECT_EQ(config.num_labels(), 12);
  EXPECT_EQ(config.labels[2], "class 2");
  EXPECT_EQ(config.labels[10], "class 10");
}

TEST(BigBirdConfig, NumLabelsAlone) {
  const BigBirdConfig config =
      parse_bigbird_config(R"({"num_labels": 3})", "config.json");
  EXPECT_THAT(config.labels, ElementsAre("LABEL_0", "LABEL_1", "LABEL_2"));
}

TEST(BigBirdConfig, WhatIsWrittenComesBack) {
  BigBirdConfig config;
  config.vocab_size = 200;
  config.hidden_size = 48;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  config.intermediate_size = 100;
  config.hidden_act = "relu";
  config.hidden_dropout_prob = 0.25;
  config.attention_probs_dropout_prob = 0.0;
  config.max_position_embeddings = 512;
  config.type_vocab_size = 1;
  config.initializer_range = 0.5;
  config.layer_norm_eps = 1e-5;
  config.use_bias = false;
  config.rescale_embeddings = true;
  config.attention_type = AttentionType::kOriginalFull;
  config.block_size = 32;
  config.num_random_blocks = 1;
  config.classifier_dropout = 0.125;
  config.pad_token_id = 7;
  config.bos_token_id = 8;
  config.eos_token_id = 9;
  config.sep_token_id = 10;
  config.labels = {"no", "yes \"quoted\"", "\u00e9"};
  config.random_blocks = RandomBlocks::kPhilox;
  const std::string text = to_json(config);
  const BigBirdConfig got = parse_bigbird_config(text, "config.json");
  EXPECT_EQ(to_json(got), text);
  EXPECT_EQ(got.labels, config.labels);
  EXPECT_EQ(got.classifier_dropout, 0.125);
  EXPECT_EQ(got.random_blocks, RandomBlocks::kPhilox);
  EXPECT_FALSE(got.use_bias);
  EXPECT_TRUE(got.rescale_embeddings);
}

// What Hugging Face's loader looks at, and nothing of ours by default.
TEST(BigBirdConfig, WrittenForHuggingFace) {
  BigBirdConfig config;
  config.labels = {"bad", "good"};
  const json value = json::parse(to_json(config));
  EXPECT_EQ(value["model_type"], "big_bird");
  EXPECT_EQ(value["architectures"],
            json::array({"BigBirdForSequenceClassification"}));
  EXPECT_EQ(value["id2label"], (json{{"0", "bad"}, {"1", "good"}}));
  EXPECT_EQ(value["label2id"], (json{{"bad", 0}, {"good", 1}}));
  EXPECT_EQ(value["attention_type"], "block_sparse");
  EXPECT_TRUE(value["classifier_dropout"].is_null());
  EXPECT_FALSE(value.contains("random_blocks"));
  EXPECT_EQ(parse_bigbird_config(R"({"attention_type": "simulated_sparse"})",
                                 "config.json")
                .attention_type,
            AttentionType::kSimulatedSparse);
}

struct BadField {
  const char* field;
  json value;
  const char* error;
};

TEST(BigBirdConfig, EachBadFieldIsNamedWithTheRemedy) {
  const std::vector<BadField> fields{
      {"model_type", "bert",
       "model_type is \"bert\"; this is the reader of \"big_bird\"; give a "
       "BigBird model"},
      {"is_decoder", true, "is_decoder is true; only the encoder exists here"},
      {"position_embedding_type", "relative_key",
       "position_embedding_type is \"relative_key\"; it must be \"absolute\""},
      {"vocab_size", 0, "vocab_size is 0; it must be from 1 to 1048576"},
      {"hidden_size", -768, "hidden_size is -768; it must be from 1"},
      {"hidden_size", 768.5, "hidden_size is 768.5; it must be a whole number"},
      {"hidden_size", "768", "hidden_size is \"768\"; it must be a whole"},
      {"num_hidden_layers", 0, "num_hidden_layers is 0; it must be from 1"},
      {"intermediate_size", 0, "intermediate_size is 0; it must be from 1"},
      {"max_position_embeddings", 0,
       "max_position_embeddings is 0; it must be from 1"},
      {"max_position_embeddings", INT64_MAX,
       "max_position_embeddings is 9223372036854775807; it must be from 1 to"},
      {"type_vocab_size", 0, "type_vocab_size is 0; it must be from 1"},
      {"block_size", 0, "block_size is 0; it must be from 1"},
      {"block_size", UINT64_MAX,
       "block_size is 18446744073709551615; it must be a whole number"},
      {"num_random_blocks", -1, "num_random_blocks is -1; it must be from 0"},
      {"num_attention_heads", 0, "num_attention_heads is 0; it must be from 1"},
      {"num_attention_heads", 7,
       "num_attention_heads is 7; it must divide hidden_size, which is 768"},
      {"hidden_dropout_prob", 1.0,
       "hidden_dropout_prob is 1; a dropout probability must be at least 0 "
       "and below 1"},
      {"hidden_dropout_prob", "0.1",
       "hidden_dropout_prob is \"0.1\"; it must be a number"},
      {"attention_probs_dropout_prob", -0.1,
       "attention_probs_dropout_prob is -0.1; a dropout probability"},
      {"classifier_dropout", -1.0,
       "classifier_dropout is -1.0; it must be null, or at least 0 and below "
       "1"},
      {"classifier_dropout", 1.5, "classifier_dropout is 1.5; a dropout"},
      {"layer_norm_eps", 0, "layer_norm_eps is 0; it must be above 0"},
      {"initializer_range", -0.02,
       "initializer_range is -0.02; it must be 0 or more"},
      {"attention_type", "sparse",
       "attention_type is \"sparse\"; it must be one of original_full, "
       "block_sparse, simulated_sparse"},
      {"random_blocks", "none",
       "random_blocks is \"none\"; it must be one of numpy, philox"},
      {"hidden_act", "swish",
       "hidden_act is \"swish\"; it must be one of gelu, gelu_new, gelu_fast, "
       "relu, tanh"},
      {"use_bias", 1, "use_bias is 1; it must be true or false"},
      {"pad_token_id", 50358,
       "pad_token_id is 50358; it must be below vocab_size, which is 50358"},
      {"pad_token_id", -1, "pad_token_id is -1; it must be below vocab_size"},
      {"num_labels", 0, "num_labels is 0; it must be from 1"},
      {"num_labels", INT64_MAX, "num_labels is 9223372036854775807; it must"},
      {"id2label", json::array({"a"}), "id2label is [\"a\"]; it must be an"},
      {"id2label", json::object(), "id2label is {}; it must be an object"},
      {"id2label",
       {{"0", "a"}, {"2", "b"}},
       "id2label has the key \"2\"; its 2 keys must be 0 to 1"},
      {"id2label", {{"zero", "a"}}, "id2label has the key \"zero\""},
      {"id2label", {{"0", "a"}, {"00", "b"}}, "its 2 keys must be 0 to 1"},
      {"id2label",
       {{"0", 5}},
       "id2label has 5 for class 0; a label must be a string"},
      {"id2label",
       {{"0", "a"}, {"1", "b"}, {"2", "a"}},
       "id2label has the label \"a\" for the classes 0 and 2; every class"},
  };
  for (const BadField& bad : fields) {
    const std::string error = error_of({{bad.field, bad.value}});
    EXPECT_THAT(error, testing::StartsWith("[config] config.json: "));
    EXPECT_THAT(error, HasSubstr(bad.error));
  }
}

TEST(BigBirdConfig, AbsurdModelsAreRefused) {
  EXPECT_THAT(error_of({{"hidden_size", 1 << 20},
                        {"num_attention_heads", 1 << 10},
                        {"intermediate_size", 1 << 20}}),
              HasSubstr("hidden_size is 1048576; with num_hidden_layers 12, "
                        "intermediate_size 1048576 and vocab_size 50358 the "
                        "model has more than 2^40 parameters"));
}

TEST(BigBirdConfig, BrokenTextIsLocated) {
  try {
    parse_bigbird_config("{\n  \"hidden_size\": ,\n}", "m/config.json");
    FAIL() << "accepted broken JSON";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("[config] m/config.json: line 2, column"));
  }
  EXPECT_THROW(parse_bigbird_config("[]", "config.json"), UsageError);
}

TEST(BigBirdConfig, PutTogetherInCodeIsCheckedToo) {
  BigBirdConfig config;
  config.layer_norm_eps = std::nan("");
  EXPECT_THROW(check_bigbird_config(config, "test"), UsageError);
  config = BigBirdConfig();
  config.classifier_dropout = std::nan("");
  EXPECT_THROW(check_bigbird_config(config, "test"), UsageError);
  config = BigBirdConfig();
  config.labels.clear();
  EXPECT_THROW(check_bigbird_config(config, "test"), UsageError);
}

}  // namespace
}  // namespace remat::nn
