// Recomputing layers changes no bit of loss and gradients.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <ostream>

#include "remat/base/error.h"
#include "remat/plan/bounds.h"
#include "remat/plan/solve.h"
#include "tests/nn/bigbird_test_util.h"

namespace remat::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Case {
  std::string name;
  AttentionType type;
  int64_t length;
  double dropout;
};

void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

class BigBirdCheckpointing : public testing::TestWithParam<Case> {
 protected:
  BigBirdConfig config() const {
    BigBirdConfig config = tiny_config();
    config.num_hidden_layers = 4;
    config.attention_type = GetParam().type;
    config.hidden_dropout_prob = GetParam().dropout;
    config.attention_probs_dropout_prob = GetParam().dropout;
    return config;
  }
};

TEST_P(BigBirdCheckpointing, ChangesNoBit) {
  BigBirdClassifier model(config());
  randomize_weights(model, 1);
  const BigBirdInput input = tiny_input(2, GetParam().length, 2);
  std::optional<LossAndGradients> plain;
  for (const int64_t every : {0, 1, 2, 3, 100}) {
    model.set_checkpointing({every > 0, std::max<int64_t>(every, 1)});
    at::manual_seed(3);
    const LossAndGradients result =
        backward(model, classification_loss(model.forward(input)));
    if (!plain.has_value()) {
      plain = result;
    }
    expect_equal(result, *plain);
    // The generator too is where the plain run leaves it.
    const double next = at::rand({}).item<double>();
    at::manual_seed(3);
    model.set_checkpointing({});
    const c10::NoGradGuard no_grad;
    model.forward(input);
    EXPECT_EQ(at::rand({}).item<double>(), next);
  }
}

// The stages cost the same on paper, so that each kind of plan is made.
TEST_P(BigBirdCheckpointing, AnyPlanChangesNoBit) {
  BigBirdClassifier model(config());
  randomize_weights(model, 1);
  const BigBirdInput input = tiny_input(2, GetParam().length, 2);
  plan::Chain chain;
  chain.stages.assign(10, {.name = "",
                           .forward_seconds = 1,
                           .backward_seconds = 2,
                           .output_bytes = 1,
                           .saved_bytes = 4,
                           .options = {}});
  at::manual_seed(3);
  const LossAndGradients plain =
      backward(model, classification_loss(model.forward(input)));
  const double next = at::rand({}).item<double>();
  for (int64_t budget = plan::least_budget(chain); budget <= 46; ++budget) {
    plan::SolveOptions options;
    options.budget_bytes = budget;
    const plan::Schedule schedule = plan::solve(chain, options)->schedule;
    SCOPED_TRACE(plan::to_text(schedule));
    const auto regions =
        std::make_shared<const plan::RegionPlan>(plan::region_plan(schedule));
    model.set_plan(regions);
    at::manual_seed(3);
    const std::vector<int64_t> before = model.half_runs();
    expect_equal(backward(model, classification_loss(model.forward(input))),
                 plain);
    const std::vector<int> forwards = plan::forwards_of(*regions);
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(model.half_runs()[i] - before[i], forwards[i + 1])
          << "half " << i << " within " << budget;
    }
    EXPECT_EQ(at::rand({}).item<double>(), next) << budget;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BigBirdCheckpointing,
    testing::Values(
        Case{"sparse", AttentionType::kBlockSparse, 41, 0},
        Case{"sparse_dropout", AttentionType::kBlockSparse, 41, 0.2},
        Case{"simulated", AttentionType::kSimulatedSparse, 41, 0},
        Case{"simulated_dropout", AttentionType::kSimulatedSparse, 41, 0.2},
        Case{"full", AttentionType::kOriginalFull, 41, 0},
        Case{"full_dropout", AttentionType::kOriginalFull, 41, 0.2},
        Case{"short_dropout", AttentionType::kBlockSparse, 11, 0.2}),
    [](const auto& info) { return info.param.name; });

TEST(BigBirdRecomputation, RunsTheChosenLayersTwice) {
  BigBirdConfig config = tiny_config();
  config.num_hidden_layers = 5;
  const BigBirdInput input = tiny_input(1, 33, 0);
  const auto runs = [&](const LayerCheckpointing& checkpointing) {
    BigBirdClassifier model(config);
    model.set_checkpointing(checkpointing);
    backward(model, classification_loss(model.forward(input)));
    return model.half_runs();
  };
  EXPECT_THAT(runs({}), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(runs({true, 1}), ElementsAre(2, 2, 2, 2, 2, 2, 2, 2, 2, 2));
  EXPECT_THAT(runs({true, 2}), ElementsAre(2, 2, 1, 1, 2, 2, 1, 1, 2, 2));
  EXPECT_THAT(runs({true, 3}), ElementsAre(2, 2, 1, 1, 1, 1, 2, 2, 1, 1));
  EXPECT_THAT(runs({false, 2}), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 1));
}

TEST(BigBirdRecomputation, NothingIsRecomputedWithoutGradients) {
  BigBirdClassifier model(tiny_config());
  model.set_checkpointing({true, 1});
  const c10::NoGradGuard no_grad;
  model.forward(tiny_input(1, 33, 0));
  EXPECT_THAT(model.half_runs(), ElementsAre(1, 1, 1, 1));
}

TEST(BigBirdRecomputation, MayOutliveTheModel) {
  auto model = std::make_unique<BigBirdClassifier>(tiny_config());
  model->set_checkpointing({true, 1});
  const auto parameters = model->named_parameters();
  const at::Tensor loss =
      classification_loss(model->forward(tiny_input(1, 33, 0)));
  model.reset();
  loss.backward();
  EXPECT_TRUE(parameters.front().second.grad().defined());
}

TEST(BigBirdRecomputation, APlanIsForTheModelsStages) {
  BigBirdClassifier model(tiny_config());
  const auto plan = std::make_shared<const plan::RegionPlan>(
      plan::RegionPlan{.stages = 3, .steps = {}});
  try {
    model.set_plan(plan);
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "[bigbird] the plan is for 3 stages; this model has 6: "
                 "embeddings, two for each layer, and head");
  }
}

TEST(BigBirdRecomputation, MasksDifferFromForwardToForward) {
  BigBirdConfig config = tiny_config();
  config.hidden_dropout_prob = 0.2;
  BigBirdClassifier model(config);
  randomize_weights(model, 1);
  const BigBirdInput input = tiny_input(1, 33, 0);
  EXPECT_FALSE(at::equal(model.forward(input), model.forward(input)));
  model.train(false);
  EXPECT_TRUE(at::equal(model.forward(input), model.forward(input)));
}

TEST(BigBirdRecomputation, EveryNLayersIsAtLeastOne) {
  BigBirdClassifier model(tiny_config());
  try {
    model.set_checkpointing({true, 0});
    FAIL() << "accepted every_n_layers 0";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("every_n_layers is 0; it must be at"));
  }
}

}  // namespace
}  // namespace remat::nn
