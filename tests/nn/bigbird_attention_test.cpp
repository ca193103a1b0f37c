// The fast paths of attention against slow and obvious ones, in double.
#include "remat/nn/bigbird_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <limits>

#include "remat/nn/block_layouts.h"
#include "tests/nn/bigbird_test_util.h"

namespace remat::nn {
namespace {

BigBirdClassifier double_model(const BigBirdConfig& config, uint64_t seed,
                               bool train) {
  BigBirdClassifier model(config);
  model.to(at::kDouble);
  randomize_weights(model, seed);
  model.train(train);
  return model;
}

// An arbitrary mask: padding anywhere, whole rows of it too.
at::Tensor random_mask(int64_t batch, int64_t length) {
  const double real = *rc::gen::element(0.0, 0.5, 0.9, 1.0);
  return at::rand({batch, length}).lt(real).to(at::kLong);
}

TEST(BigBirdAttention, BlockSparseIsSimulatedSparse) {
  EXPECT_TRUE(rc::check("forward and every gradient", [] {
    BigBirdConfig config = tiny_config();
    config.block_size = *rc::gen::element(2, 3, 4);
    config.num_random_blocks = *rc::gen::inRange(0, 3);
    config.num_attention_heads = *rc::gen::element(1, 2, 4);
    config.use_bias = *rc::gen::arbitrary<bool>();
    config.rescale_embeddings = *rc::gen::arbitrary<bool>();
    config.hidden_act =
        *rc::gen::element<std::string>("gelu", "gelu_fast", "relu", "tanh");
    config.random_blocks =
        *rc::gen::element(RandomBlocks::kNumpy, RandomBlocks::kPhilox);
    const int64_t shortest =
        (5 + 2 * config.num_random_blocks) * config.block_size + 1;
    const int64_t length = *rc::gen::inRange<int64_t>(
        shortest, config.max_position_embeddings - config.block_size);
    const int64_t batch = *rc::gen::inRange(1, 4);
    const auto seed = *rc::gen::inRange<uint64_t>(0, 1000);
    const bool train = *rc::gen::arbitrary<bool>();
    at::manual_seed(seed);
    BigBirdInput input = tiny_input(batch, length, seed);
    input.attention_mask = random_mask(batch, length);
    const at::Tensor weight =
        at::randn({batch, length, config.hidden_size}, at::kDouble);

    const auto run = [&](AttentionType type) {
      config.attention_type = type;
      BigBirdClassifier model = double_model(config, seed, train);
      const BigBirdOutput output = model.encode(input, false);
      return backward(model, (output.last_hidden_state * weight).sum() +
                                 output.pooled.sum());
    };
    const LossAndGradients fast = run(AttentionType::kBlockSparse);
    const LossAndGradients slow = run(AttentionType::kSimulatedSparse);
    RC_ASSERT(std::isfinite(slow.loss.item<double>()));
    RC_ASSERT(at::allclose(fast.loss, slow.loss, 1e-10, 1e-10));
    for (const auto& [name, gradient] : slow.gradients) {
      const double scale = 1 + gradient.abs().max().item<double>();
      const double difference =
          (fast.gradients.at(name) - gradient).abs().max().item<double>();
      RC_ASSERT(difference <= 1e-10 * scale);
    }
  }));
}

// Softmax over all keys, as in the books.
at::Tensor full_attention(const at::Tensor& query, const at::Tensor& key,
                          const at::Tensor& value, const at::Tensor& mask) {
  const double scale = 1 / std::sqrt(static_cast<double>(query.size(3)));
  const at::Tensor bias =
      (1 - mask.to(at::kDouble)) * std::numeric_limits<double>::lowest();
  const at::Tensor scores = at::einsum("bihd,bjhd->bhij", {query, key}) * scale;
  return at::einsum(
      "bhij,bjhd->bihd",
      {at::softmax(scores + bias.unsqueeze(1).unsqueeze(1), -1), value});
}

TEST(BigBirdAttention, FullAttentionIsSoftmaxOverAllKeys) {
  EXPECT_TRUE(rc::check("forward and gradients", [] {
    BigBirdConfig config = tiny_config();
    const int64_t batch = *rc::gen::inRange(1, 4);
    const int64_t length = *rc::gen::inRange<int64_t>(1, 150);
    at::manual_seed(*rc::gen::inRange<uint64_t>(0, 1000));
    const at::Tensor mask = random_mask(batch, length);
    std::vector<at::Tensor> inputs;
    for (int i = 0; i < 3; ++i) {
      inputs.push_back(
          at::randn({batch, length, config.num_attention_heads, 4}, at::kDouble)
              .requires_grad_(true));
    }
    const at::Tensor weight = at::randn_like(inputs[0]);
    BlockLayouts layouts(config);
    const AttentionBatch full = make_attention_batch(
        AttentionType::kOriginalFull, mask, at::kDouble, 0);
    const auto gradients_of = [&](const at::Tensor& output) {
      for (at::Tensor& input : inputs) {
        input.mutable_grad() = at::Tensor();
      }
      (output * weight).sum().backward();
      return std::vector<at::Tensor>{output.detach(), inputs[0].grad(),
                                     inputs[1].grad(), inputs[2].grad()};
    };
    const auto got = gradients_of(attend(inputs[0], inputs[1], inputs[2], full,
                                         layouts.dense(length), 0));
    const auto want =
        gradients_of(full_attention(inputs[0], inputs[1], inputs[2], mask));
    for (size_t i = 0; i < want.size(); ++i) {
      RC_ASSERT(at::allclose(got[i], want[i], 1e-10, 1e-10));
    }
  }));
}

// Dropout takes another path; where nothing happens to fall out they agree.
TEST(BigBirdAttention, DropoutOfProbabilitiesKeepsTheMean) {
  BigBirdConfig config = tiny_config();
  BlockLayouts layouts(config);
  const at::Tensor mask = at::ones({1, 20}, at::kLong);
  const at::Tensor query = at::randn({1, 20, 2, 4}, at::kDouble);
  const at::Tensor key = at::randn({1, 20, 2, 4}, at::kDouble);
  const at::Tensor value = at::randn({1, 20, 2, 4}, at::kDouble);
  const at::Tensor want = full_attention(query, key, value, mask);
  const auto with_dropout = [&](double p, uint64_t seed) {
    return attend(query, key, value,
                  make_attention_batch(AttentionType::kOriginalFull, mask,
                                       at::kDouble, p),
                  layouts.dense(20), seed);
  };
  EXPECT_TRUE(at::allclose(with_dropout(1e-12, 0), want, 1e-9, 1e-9));
  EXPECT_TRUE(at::equal(with_dropout(0.5, 7), with_dropout(0.5, 7)));
  EXPECT_FALSE(at::equal(with_dropout(0.5, 7), with_dropout(0.5, 8)));
  at::Tensor sum = at::zeros_like(want);
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    sum += with_dropout(0.2, seed);
  }
  EXPECT_LT((sum / 2000 - want).abs().max().item<double>(), 0.1);
}

TEST(BigBirdAttention, LayoutsAreBuiltOnce) {
  const BigBirdConfig config = tiny_config();
  BlockLayouts layouts(config);
  EXPECT_EQ(layouts.sparse(0, 10, true), layouts.sparse(0, 10, true));
  EXPECT_NE(layouts.sparse(0, 10, true), layouts.sparse(1, 10, true));
  EXPECT_NE(layouts.sparse(0, 10, true), layouts.sparse(0, 11, true));
  EXPECT_NE(layouts.sparse(0, 10, true), layouts.sparse(0, 10, false));
  EXPECT_EQ(layouts.sparse(0, 10, false), layouts.sparse(1, 10, false));
  EXPECT_EQ(layouts.dense(65), layouts.dense(128));
}

}  // namespace
}  // namespace remat::nn
