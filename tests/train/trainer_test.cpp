#include "remat/train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "remat/base/error.h"
#include "remat/memory/threads.h"
#include "tests/train/tiny_model.h"

namespace remat::train {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPad = 0;

// Keeps all reports, and stops after a given step.
class Recorder : public TrainObserver {
 public:
  void on_step(const StepReport& report) override { steps.push_back(report); }
  void on_evaluation(const EvaluationReport& report) override {
    evaluations.push_back(report);
  }
  bool stop_requested() override {
    return static_cast<int64_t>(steps.size()) >= stop_after;
  }

  std::vector<StepReport> steps;
  std::vector<EvaluationReport> evaluations;
  int64_t stop_after = std::numeric_limits<int64_t>::max();
};

struct Trained {
  TrainResult result;
  std::vector<std::pair<std::string, at::Tensor>> weights;
  Recorder recorder;
};

Trained run(const TrainOptions& options, const nn::BigBirdConfig& config,
            const data::Dataset& train_set,
            const data::Dataset* validation_set = nullptr,
            int64_t stop_after = std::numeric_limits<int64_t>::max()) {
  at::manual_seed(options.seed);
  nn::BigBirdClassifier model(config);
  Trained run;
  run.recorder.stop_after = stop_after;
  run.result =
      train(model, train_set, validation_set, kPad, options, run.recorder);
  for (const auto& [name, weight] : model.named_parameters()) {
    run.weights.emplace_back(name, weight.detach().clone());
  }
  return run;
}

TrainOptions tiny_options() {
  TrainOptions options;
  options.per_device_train_batch_size = 2;
  options.learning_rate = 2e-3;
  options.warmup_ratio = 0.1;
  options.weight_decay = 0.01;
  return options;
}

void expect_same(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.result.losses, b.result.losses);
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (size_t i = 0; i < a.weights.size(); ++i) {
    EXPECT_TRUE(at::equal(a.weights[i].second, b.weights[i].second))
        << a.weights[i].first << " differs by "
        << (a.weights[i].second - b.weights[i].second).abs().max();
  }
}

// 50 steps with dropout, for a number of threads.
class Recomputation : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    threads_ = at::get_num_threads();
    set_compute_threads(GetParam());
    options_.max_steps = 50;
    plain_ = run(options_, tiny_config(), texts_);
    ASSERT_EQ(plain_.result.losses.size(), 50u);
  }
  void TearDown() override { set_compute_threads(threads_); }

  const data::Dataset texts_ = tiny_dataset(30, 192, 256);
  TrainOptions options_ = tiny_options();
  Trained plain_;
  int threads_ = 1;
};

TEST_P(Recomputation, OfAllLayersChangesNoBit) {
  options_.checkpointing = {true, 1};
  expect_same(plain_, run(options_, tiny_config(), texts_));
}

TEST_P(Recomputation, OfEverySecondLayerChangesNoBit) {
  options_.checkpointing = {true, 2};
  expect_same(plain_, run(options_, tiny_config(), texts_));
}

INSTANTIATE_TEST_SUITE_P(Threads, Recomputation, ::testing::Values(1, 2));

// Not to the last bit: with another number of threads OpenBLAS sums matrix
// products, and ATen the gradients of layer-norm parameters, in another order.
TEST(Trainer, NumberOfThreadsChangesLittle) {
  const int threads = at::get_num_threads();
  const data::Dataset texts = tiny_dataset(30, 192, 256);
  TrainOptions options = tiny_options();
  options.max_steps = 10;
  set_compute_threads(1);
  const Trained one = run(options, tiny_config(), texts);
  set_compute_threads(2);
  const Trained two = run(options, tiny_config(), texts);
  set_compute_threads(threads);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_NEAR(one.result.losses[i], two.result.losses[i], 1e-4) << i;
  }
}

TEST(Trainer, LearnsToTellTextsApart) {
  TrainOptions options = tiny_options();
  options.per_device_train_batch_size = 4;
  options.max_steps = 80;
  options.eval_steps = 20;
  const data::Dataset texts = tiny_dataset(64, 60, 200);
  const data::Dataset validation = tiny_dataset(20, 60, 200, 99);
  const Trained trained = run(options, tiny_config(2), texts, &validation);
  ASSERT_TRUE(trained.result.best.has_value());
  EXPECT_GT(trained.result.best->evaluation.metrics.accuracy, 0.9);
  EXPECT_EQ(trained.recorder.evaluations.size(), 4u);
  EXPECT_TRUE(trained.recorder.evaluations.front().best);
  EXPECT_LT(trained.result.losses.back(), trained.result.losses.front());
  EXPECT_EQ(trained.recorder.steps.back().step, 80);
  EXPECT_NEAR(trained.recorder.steps[15].epoch, 1, 1e-12);
}

TEST(Trainer, AccumulatedBatchesEqualOneBigBatch) {
  nn::BigBirdConfig config = tiny_config(2);
  config.hidden_dropout_prob = 0;
  config.attention_probs_dropout_prob = 0;
  // 7 texts: the last batch of an epoch is smaller, and counts for less.
  const data::Dataset texts = tiny_dataset(7, 200, 200);
  TrainOptions big = tiny_options();
  big.per_device_train_batch_size = 4;
  big.max_steps = 6;
  TrainOptions small = big;
  small.per_device_train_batch_size = 2;
  small.gradient_accumulation_steps = 2;
  const Trained a = run(big, config, texts);
  const Trained b = run(small, config, texts);
  ASSERT_EQ(a.result.losses.size(), b.result.losses.size());
  for (size_t i = 0; i < a.result.losses.size(); ++i) {
    EXPECT_NEAR(a.result.losses[i], b.result.losses[i], 1e-5) << i;
    EXPECT_NEAR(a.recorder.steps[i].grad_norm, b.recorder.steps[i].grad_norm,
                1e-4 * a.recorder.steps[i].grad_norm)
        << i;
  }
}

TEST(Trainer, TheSeedDecidesTheRun) {
  const data::Dataset texts = tiny_dataset(8, 60, 100);
  TrainOptions options = tiny_options();
  options.max_steps = 5;
  const Trained a = run(options, tiny_config(1), texts);
  expect_same(a, run(options, tiny_config(1), texts));
  options.seed = 43;
  EXPECT_NE(a.result.losses, run(options, tiny_config(1), texts).result.losses);
}

TEST(Trainer, CountsSteps) {
  TrainOptions options;
  options.per_device_train_batch_size = 4;
  options.gradient_accumulation_steps = 2;
  options.num_train_epochs = 3;
  EXPECT_EQ(count_steps(options, 17), 9);  // 5 batches, 3 steps an epoch
  options.num_train_epochs = 0.5;
  EXPECT_EQ(count_steps(options, 17), 2);
  options.max_steps = 7;
  EXPECT_EQ(count_steps(options, 17), 7);
}

TEST(Trainer, StopsAfterTheStepThatIsAskedFor) {
  TrainOptions options = tiny_options();
  options.max_steps = 10;
  const data::Dataset texts = tiny_dataset(8, 60, 100);
  const Trained stopped = run(options, tiny_config(1), texts, &texts, 3);
  EXPECT_TRUE(stopped.result.interrupted);
  EXPECT_EQ(stopped.result.steps, 3);
}

TEST(Trainer, NonFiniteLossNamesTheStep) {
  TrainOptions options = tiny_options();
  options.max_steps = 3;
  at::manual_seed(1);
  nn::BigBirdClassifier model(tiny_config(1));
  {
    const c10::NoGradGuard no_grad;
    for (const auto& [name, weight] : model.named_parameters()) {
      if (name == "classifier.out_proj.bias") {
        weight.fill_(std::nan(""));
      }
    }
  }
  TrainObserver observer;
  try {
    train(model, tiny_dataset(4, 60, 100), nullptr, kPad, options, observer);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("[train] step 1: the loss is"));
    EXPECT_THAT(error.what(), HasSubstr("nan"));
  }
}

TEST(Evaluation, PutsTheModeBackAndAgreesWithPredictions) {
  at::manual_seed(1);
  nn::BigBirdClassifier model(tiny_config(1));
  model.train(true);
  const data::Dataset texts = tiny_dataset(9, 60, 200);
  const auto evaluation = evaluate(model, texts, 4, kPad);
  EXPECT_TRUE(model.is_training());
  const auto probabilities = predict(model, texts, 4, kPad);
  double right = 0, loss = 0;
  for (size_t i = 0; i < 9; ++i) {
    const auto& row = probabilities[i];
    EXPECT_NEAR(row[0] + row[1], 1, 1e-9);
    const int64_t label = texts.examples[i].label;
    right += (row[1] > row[0] ? 1 : 0) == label;
    loss -= std::log(row[label]);
  }
  EXPECT_DOUBLE_EQ(evaluation->metrics.accuracy, right / 9);
  EXPECT_NEAR(evaluation->loss, loss / 9, 1e-5);
  EXPECT_FALSE(evaluate(model, texts, 4, kPad, [] { return true; }));
}

TEST(Evaluation, RefusesOutputsThatAreNotFinite) {
  nn::BigBirdClassifier model(tiny_config(1));
  const c10::NoGradGuard no_grad;
  for (const auto& [name, weight] : model.named_parameters()) {
    if (name == "classifier.out_proj.bias") {
      weight[0].fill_(std::nan(""));
    }
  }
  const data::Dataset texts = tiny_dataset(4, 60, 100);
  const auto error_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(error_of([&] { evaluate(model, texts, 4, kPad); }),
              HasSubstr("outputs are not finite"));
  EXPECT_THAT(error_of([&] { predict(model, texts, 4, kPad); }),
              HasSubstr("outputs are not finite"));
}

}  // namespace
}  // namespace remat::train
