#include "remat/estimate/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/estimate/configs.h"

namespace remat::estimate {
namespace {

using ::testing::HasSubstr;

int64_t total(const char* config, Head head) {
  Model model = model_of(config);
  model.head = head;
  return count_parameters(model).total;
}

TEST(Parameters, AreThoseOfThePublishedModels) {
  // BertModel, BertForMaskedLM and BertForSequenceClassification.
  EXPECT_EQ(total(kBertBase, Head::kNone), 109'482'240);
  EXPECT_EQ(total(kBertBase, Head::kLanguageModel), 109'514'298);
  EXPECT_EQ(total(kBertBase, Head::kClassification), 109'483'778);
  // BigBirdModel and BigBirdForSequenceClassification.
  EXPECT_EQ(total(kBigBirdBase, Head::kNone), 127'468'800);
  EXPECT_EQ(total(kBigBirdBase, Head::kClassification), 128'060'930);
  // GPT2Model, GPT2LMHeadModel (tied) and GPT2ForSequenceClassification.
  EXPECT_EQ(total(kGpt2, Head::kNone), 124'439'808);
  EXPECT_EQ(total(kGpt2, Head::kLanguageModel), 124'439'808);
  EXPECT_EQ(total(kGpt2, Head::kClassification), 124'441'344);
}

TEST(Parameters, ByPart) {
  const Parameters bert = count_parameters(model_of(kBertBase));
  EXPECT_EQ(bert.embeddings, (30522 + 512 + 2) * 768 + 2 * 768);
  EXPECT_EQ(bert.layer,
            4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768);
  EXPECT_EQ(bert.total, bert.embeddings + 12 * bert.layer + bert.head);
  EXPECT_EQ(bert.unused, 0);
  // BigBird's classifier does not use the pooler.
  const Parameters bigbird = count_parameters(model_of(kBigBirdBase));
  EXPECT_EQ(bigbird.unused, 768 * 768 + 768);
  EXPECT_EQ(bigbird.trained(), bigbird.total - bigbird.unused);
  const Model bare = model_of(
      replaced(kBigBirdBase, "\"use_bias\": true", "\"use_bias\": false")
          .c_str());
  EXPECT_EQ(count_parameters(bare).layer, bigbird.layer - 3 * 768);
  Model untied = model_of(kGpt2);
  untied.ties_embeddings = false;
  EXPECT_EQ(count_parameters(untied).total, 124'439'808 + 50257 * 768);
}

TEST(ModelConfig, IsReadWithTheDefaultsOfHuggingFace) {
  const Model gpt2 = model_of(kGpt2);
  EXPECT_EQ(gpt2.intermediate_size, 4 * 768);
  EXPECT_EQ(gpt2.head, Head::kLanguageModel);
  EXPECT_FALSE(gpt2.is_sparse);
  const Model bigbird = model_from_config(R"({"model_type": "big_bird",
      "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2,
      "num_attention_heads": 2, "intermediate_size": 64,
      "max_position_embeddings": 256, "id2label": {"0": "a", "1": "b",
      "2": "c"}})",
                                          "config.json");
  EXPECT_TRUE(bigbird.is_sparse);
  EXPECT_EQ(bigbird.block_size, 64);
  EXPECT_EQ(bigbird.random_blocks, 3);
  EXPECT_EQ(bigbird.hidden_dropout, 0.1);
  EXPECT_EQ(bigbird.activation, "gelu_new");
  EXPECT_EQ(bigbird.labels, 3);
  EXPECT_EQ(bigbird.head_size(), 16);
}

std::string complaint(const char* config, const std::string& part,
                      const std::string& other) {
  return error_of(
      [&] { model_from_config(replaced(config, part, other), "config.json"); });
}

TEST(ModelConfig, ErrorsNameFieldValueAndRemedy) {
  const std::vector<
      std::tuple<const char*, const char*, const char*, const char*>>
      cases = {
          {kBertBase, "\"bert\"", "\"brt\"",
           "model_type is \"brt\"; big_bird, bert and gpt2 can be estimated; "
           "did you mean bert? Of another model, give the chain itself "
           "(--chain)."},
          {kBertBase, "\"model_type\": \"bert\",", "",
           "model_type is absent; big_bird, bert and gpt2"},
          {kBertBase, "\"hidden_size\": 768,", "",
           "hidden_size is absent; an estimate needs it"},
          {kGpt2, "\"n_positions\": 1024,", "",
           "n_positions is absent; an estimate needs it"},
          {kBertBase, "\"hidden_size\": 768", "\"hidden_size\": 0",
           "hidden_size is 0; it must be from 1 to 1048576"},
          {kBertBase, "\"hidden_size\": 768", "\"hidden_size\": \"768\"",
           "hidden_size is \"768\"; it must be a whole number"},
          {kBertBase, "\"num_hidden_layers\": 12",
           "\"num_hidden_layers\": 70000",
           "num_hidden_layers is 70000; it must be from 1 to 65536"},
          {kBertBase, "\"num_attention_heads\": 12",
           "\"num_attention_heads\": 7",
           "num_attention_heads is 7; it must divide the width, which is 768"},
          {kGpt2, "\"n_head\": 12", "\"n_head\": 5",
           "n_head is 5; it must divide the width"},
          {kBertBase, "\"intermediate_size\": 3072",
           "\"intermediate_size\": 1000000000",
           "intermediate_size is 1000000000; it must be from 1 to 1048576"},
          {kBertBase, "\"hidden_dropout_prob\": 0.1",
           "\"hidden_dropout_prob\": 1",
           "hidden_dropout_prob is 1; a dropout probability"},
          {kBertBase, "\"gelu\"", "\"swish\"",
           "hidden_act is \"swish\"; it must be one of gelu, gelu_new"},
          {kBigBirdBase, "\"block_sparse\"", "\"simulated_sparse\"",
           "attention_type is \"simulated_sparse\"; it must be block_sparse"},
          {kBigBirdBase, "\"block_size\": 64", "\"block_size\": 0",
           "block_size is 0; it must be from 1"},
          {kBertBase, "{", "[", "config.json: line 1, column"},
      };
  for (const auto& [config, part, other, expected] : cases) {
    EXPECT_THAT(complaint(config, part, other), HasSubstr(expected)) << part;
  }
  const std::string huge = replaced(
      replaced(kBertBase, "\"hidden_size\": 768", "\"hidden_size\": 1048576"),
      "\"num_attention_heads\": 12", "\"num_attention_heads\": 1024");
  EXPECT_THAT(error_of([&] { model_from_config(huge, "config.json"); }),
              HasSubstr("hidden_size is 1048576; with the other sizes the "
                        "model has more than 10^12 parameters"));
}

TEST(ModelConfig, HeadsByName) {
  for (const Head head :
       {Head::kClassification, Head::kLanguageModel, Head::kNone}) {
    EXPECT_EQ(parse_head("--head", name_of(head)), head);
  }
  EXPECT_EQ(error_of([] { parse_head("--head", "languagemodel"); }),
            "[plan] --head is languagemodel; it must be classification, "
            "language-model or none; did you mean language-model?");
}

}  // namespace
}  // namespace remat::estimate
