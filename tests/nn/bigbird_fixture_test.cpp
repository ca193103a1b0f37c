// Number for number what Hugging Face's models give, for each way of computing
// attention and of recomputing layers.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "tests/nn/bigbird_test_util.h"

namespace remat::nn {
namespace {

double expect_output(const Fixture& fixture, const std::string& name,
                     const at::Tensor& got) {
  return expect_close(got, fixture.expected(name), 2e-5, 2e-5, name);
}

double expect_hidden_states(const Fixture& fixture,
                            const BigBirdOutput& output) {
  EXPECT_EQ(output.hidden_states.size(), 3u);
  double worst = 0;
  for (size_t i = 0; i < output.hidden_states.size(); ++i) {
    worst = std::max(
        worst, expect_output(fixture, "hidden_states." + std::to_string(i),
                             output.hidden_states[i]));
  }
  return worst;
}

class BigBirdFixtures : public testing::TestWithParam<AttentionType> {
 protected:
  BigBirdClassifier load(const Fixture& fixture, bool train) const {
    BigBirdConfig config = fixture.config();
    config.attention_type = GetParam();
    BigBirdClassifier model(config);
    fixture.load_weights(model);
    model.train(train);
    return model;
  }
};

TEST_P(BigBirdFixtures, Encoder) {
  for (const bool train : {false, true}) {
    const Fixture fixture(train ? "bigbird_model_train_shortest"
                                : "bigbird_model_eval_pad");
    BigBirdClassifier model = load(fixture, train);
    double worst = 0;
    std::vector<LossAndGradients> results;
    for (const int64_t every : {0, 1, 2}) {
      model.set_checkpointing({every > 0, std::max<int64_t>(every, 1)});
      const BigBirdOutput output = model.encode(fixture.input(), true);
      worst = std::max(worst, expect_hidden_states(fixture, output));
      worst = std::max(worst, expect_output(fixture, "last_hidden_state",
                                            output.last_hidden_state));
      worst = std::max(worst,
                       expect_output(fixture, "pooler_output", output.pooled));
      results.push_back(backward(
          model, output.last_hidden_state.pow(2).sum() + output.pooled.sum()));
      expect_equal(results.back(), results.front());
    }
    std::cout << "max deviation " << worst << "\n";
  }
}

TEST_P(BigBirdFixtures, ClassifierWithEveryGradient) {
  const Fixture fixture("bigbird_cls_train");
  BigBirdClassifier model = load(fixture, true);
  expect_hidden_states(fixture, model.encode(fixture.input(), true));

  std::vector<LossAndGradients> results;
  for (const int64_t every : {0, 1, 2}) {
    model.set_checkpointing({every > 0, std::max<int64_t>(every, 1)});
    const at::Tensor logits = model.forward(fixture.input());
    double worst = expect_output(fixture, "logits", logits);
    results.push_back(
        backward(model, at::cross_entropy_loss(logits, fixture.labels())));
    worst =
        std::max(worst, expect_output(fixture, "loss", results.back().loss));
    double worst_gradient = 0;
    EXPECT_EQ(results.back().gradients.size(), fixture.count_gradients());
    for (const auto& [name, gradient] : results.back().gradients) {
      worst_gradient =
          std::max(worst_gradient,
                   expect_close(gradient, fixture.expected("grad." + name),
                                1e-6, 2e-5, name));
    }
    expect_equal(results.back(), results.front());
    std::cout << "max deviation " << worst << ", of gradients "
              << worst_gradient << "\n";
  }
}

INSTANTIATE_TEST_SUITE_P(AttentionTypes, BigBirdFixtures,
                         testing::Values(AttentionType::kBlockSparse,
                                         AttentionType::kSimulatedSparse),
                         [](const auto& info) {
                           return info.param == AttentionType::kBlockSparse
                                      ? "block_sparse"
                                      : "simulated_sparse";
                         });

}  // namespace
}  // namespace remat::nn
