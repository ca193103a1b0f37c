#include "remat/nn/bigbird.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "remat/base/error.h"
#include "tests/nn/bigbird_test_util.h"

namespace remat::nn {
namespace {

using testing::HasSubstr;

std::string error_of(BigBirdClassifier& model, const BigBirdInput& input) {
  try {
    model.forward(input);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(BigBird, NamesAndOrderAreHuggingFaces) {
  BigBirdConfig config = tiny_config();
  config.num_hidden_layers = 1;
  std::vector<std::string> names;
  for (const auto& [name, parameter] :
       BigBirdClassifier(config).named_parameters()) {
    EXPECT_TRUE(parameter.is_leaf());
    EXPECT_TRUE(parameter.requires_grad());
    names.push_back(name);
  }
  const std::string layer = "bert.encoder.layer.0.";
  EXPECT_THAT(
      names,
      testing::ElementsAre(
          "bert.embeddings.word_embeddings.weight",
          "bert.embeddings.position_embeddings.weight",
          "bert.embeddings.token_type_embeddings.weight",
          "bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.bias",
          layer + "attention.self.query.weight",
          layer + "attention.self.query.bias",
          layer + "attention.self.key.weight",
          layer + "attention.self.key.bias",
          layer + "attention.self.value.weight",
          layer + "attention.self.value.bias",
          layer + "attention.output.dense.weight",
          layer + "attention.output.dense.bias",
          layer + "attention.output.LayerNorm.weight",
          layer + "attention.output.LayerNorm.bias",
          layer + "intermediate.dense.weight",
          layer + "intermediate.dense.bias", layer + "output.dense.weight",
          layer + "output.dense.bias", layer + "output.LayerNorm.weight",
          layer + "output.LayerNorm.bias", "bert.pooler.weight",
          "bert.pooler.bias", "classifier.dense.weight",
          "classifier.dense.bias", "classifier.out_proj.weight",
          "classifier.out_proj.bias"));
}

TEST(BigBird, WithoutBiasOnlyTheProjectionsLoseTheirs) {
  BigBirdConfig config = tiny_config();
  config.use_bias = false;
  std::set<std::string> names;
  for (const auto& [name, parameter] :
       BigBirdClassifier(config).named_parameters()) {
    names.insert(name);
  }
  EXPECT_EQ(names.count("bert.encoder.layer.0.attention.self.key.bias"), 0u);
  EXPECT_EQ(names.count("bert.encoder.layer.0.attention.output.dense.bias"),
            1u);
}

TEST(BigBird, FreshWeights) {
  BigBirdConfig config = tiny_config();
  config.vocab_size = 5000;
  config.pad_token_id = 3;
  at::manual_seed(1);
  const BigBirdClassifier model(config);
  at::manual_seed(1);
  const BigBirdClassifier again(config);
  const auto parameters = model.named_parameters();
  const auto others = again.named_parameters();
  const at::Tensor words = parameters[0].second.detach();
  EXPECT_NEAR(words.std().item<double>(), 0.02, 0.0005);
  EXPECT_NEAR(words.mean().item<double>(), 0, 0.0005);
  EXPECT_EQ(words[3].abs().max().item<double>(), 0);
  EXPECT_GT(words[0].abs().max().item<double>(), 0);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    EXPECT_TRUE(at::equal(parameter, others[i].second)) << name;
    if (name.find("bias") != std::string::npos) {
      EXPECT_EQ(parameter.abs().max().item<double>(), 0) << name;
    } else if (name.find("LayerNorm") != std::string::npos) {
      EXPECT_TRUE(at::equal(parameter, at::ones_like(parameter))) << name;
    }
  }
}

TEST(BigBird, ABrokenConfigurationIsRefused) {
  BigBirdConfig config = tiny_config();
  config.num_attention_heads = 3;
  try {
    const BigBirdClassifier model(config);
    FAIL() << "built a model with 3 heads of 8 / 3";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("num_attention_heads is 3"));
  }
}

TEST(BigBird, AbsentMaskAndTypesAreOnesAndZeros) {
  BigBirdClassifier model(tiny_config());
  randomize_weights(model, 1);
  BigBirdInput input = tiny_input(1, 37, 0);
  input.token_type_ids.zero_();
  EXPECT_TRUE(at::equal(model.forward(input),
                        model.forward({input.input_ids, {}, {}})));
}

// In Hugging Face's model one short batch turns it to full attention for good.
TEST(BigBird, AShortBatchAttendsInFullAndChangesNothingElse) {
  BigBirdConfig config = tiny_config();
  BigBirdClassifier sparse(config);
  config.attention_type = AttentionType::kOriginalFull;
  BigBirdClassifier full(config);
  randomize_weights(sparse, 1);
  randomize_weights(full, 1);
  const BigBirdInput shorter = tiny_input(2, 28, 0);
  const BigBirdInput longer = tiny_input(2, 29, 0);
  const at::Tensor before = sparse.forward(longer);
  EXPECT_FALSE(at::equal(before, full.forward(longer)));
  testing::internal::CaptureStderr();
  EXPECT_TRUE(at::equal(sparse.forward(shorter), full.forward(shorter)));
  sparse.forward(shorter);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(
      said, HasSubstr("[bigbird] batches of at most 28 tokens attend in full"));
  EXPECT_EQ(said.find("attend in full"), said.rfind("attend in full"));
  EXPECT_EQ(sparse.encode(shorter, true).hidden_states[0].size(1), 28);
  EXPECT_EQ(sparse.encode(longer, true).hidden_states[0].size(1), 32);
  EXPECT_TRUE(at::equal(before, sparse.forward(longer)));
}

TEST(BigBird, MaskedTokensChangeNothing) {
  for (const auto type :
       {AttentionType::kBlockSparse, AttentionType::kOriginalFull}) {
    BigBirdConfig config = tiny_config();
    config.attention_type = type;
    BigBirdClassifier model(config);
    randomize_weights(model, 1);
    BigBirdInput input = tiny_input(3, 37, 0);
    const at::Tensor before = model.forward(input);
    input.input_ids = at::where(input.attention_mask == 1, input.input_ids,
                                at::full_like(input.input_ids, 9));
    EXPECT_TRUE(at::equal(before, model.forward(input)));
  }
}

TEST(BigBird, ABatchOfPaddingStaysFinite) {
  for (const int64_t length : {20, 37}) {
    BigBirdClassifier model(tiny_config());
    randomize_weights(model, 1);
    BigBirdInput input = tiny_input(2, length, 0);
    input.attention_mask.zero_();
    const LossAndGradients result =
        backward(model, classification_loss(model.forward(input)));
    EXPECT_TRUE(at::isfinite(result.loss).item<bool>());
    for (const auto& [name, gradient] : result.gradients) {
      EXPECT_TRUE(at::isfinite(gradient).all().item<bool>()) << name;
    }
  }
}

TEST(BigBird, OtherDtypes) {
  BigBirdClassifier model(tiny_config());
  randomize_weights(model, 1);
  model.train(false);
  const BigBirdInput input = tiny_input(2, 37, 0);
  const auto handle = model.named_parameters()[5].second;
  const at::Tensor want = model.forward(input);
  model.to(at::kDouble);
  EXPECT_EQ(handle.scalar_type(), at::kDouble);
  const at::Tensor precise = model.forward(input);
  EXPECT_EQ(precise.scalar_type(), at::kDouble);
  EXPECT_TRUE(at::allclose(precise.to(at::kFloat), want, 1e-4, 1e-4));
  precise.sum().backward();
  model.to(at::kFloat);
  EXPECT_EQ(handle.grad().scalar_type(), at::kFloat);
  model.to(at::kBFloat16);
  EXPECT_TRUE(
      at::allclose(model.forward(input).to(at::kFloat), want, 0.1, 0.3));
  EXPECT_THROW(model.to(at::kLong), UsageError);
}

TEST(BigBird, BadInputIsNamedWithTheRemedy) {
  BigBirdConfig config = tiny_config();
  config.max_position_embeddings = 62;
  BigBirdClassifier model(config);
  const BigBirdInput good = tiny_input(2, 40, 0);
  EXPECT_EQ(error_of(model, good), "no error");

  BigBirdInput bad = good;
  bad.input_ids = good.input_ids.clone();
  bad.input_ids[1][5] = 30;
  EXPECT_EQ(error_of(model, bad),
            "[bigbird] input_ids has 30, outside [0, 30): vocab_size is 30; is "
            "the tokenizer the model's?");
  bad.input_ids[1][5] = -1;
  EXPECT_THAT(error_of(model, bad), HasSubstr("input_ids has -1, outside"));

  bad = good;
  bad.input_ids = good.input_ids.to(at::kInt);
  EXPECT_THAT(error_of(model, bad),
              HasSubstr("input_ids has dtype Int; convert it to int64"));
  bad.input_ids = good.input_ids[0];
  EXPECT_THAT(
      error_of(model, bad),
      HasSubstr("input_ids has shape [40]; it must be [batch, length]"));
  bad.input_ids = at::empty({2, 0}, at::kLong);
  EXPECT_THAT(error_of(model, bad), HasSubstr("input_ids has shape [2, 0]"));
  bad.input_ids = at::Tensor();
  EXPECT_THAT(error_of(model, bad), HasSubstr("input_ids is undefined"));

  bad = good;
  bad.attention_mask = at::ones({2, 39}, at::kLong);
  EXPECT_THAT(error_of(model, bad),
              HasSubstr("attention_mask has shape [2, 39], but input_ids has "
                        "[2, 40]"));
  bad.attention_mask = at::full({2, 40}, 2, at::kLong);
  EXPECT_THAT(error_of(model, bad),
              HasSubstr("attention_mask has values other than 0 (padding)"));

  bad = good;
  bad.token_type_ids = at::full({2, 40}, 2, at::kLong);
  EXPECT_THAT(error_of(model, bad),
              HasSubstr("token_type_ids has 2, outside [0, 2): "
                        "type_vocab_size is 2"));
  bad.token_type_ids = at::zeros({1, 40}, at::kLong);
  EXPECT_THAT(error_of(model, bad), HasSubstr("token_type_ids has shape"));

  EXPECT_THAT(error_of(model, tiny_input(1, 63, 0)),
              HasSubstr("the length is 63, more than max_position_embeddings, "
                        "which is 62; cut the input"));
  EXPECT_THAT(error_of(model, tiny_input(1, 61, 0)),
              HasSubstr("the length 61 is padded to 64, a multiple of "
                        "block_size, but max_position_embeddings is 62; cut "
                        "the input to 60"));
}

}  // namespace
}  // namespace remat::nn
