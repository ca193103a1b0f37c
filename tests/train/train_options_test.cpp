#include "remat/train/train_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "remat/base/error.h"

namespace remat::train {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::function<void(TrainOptions&)>& change) {
  TrainOptions options;
  change(options);
  try {
    check(options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TrainOptions, DefaultsAreRight) { EXPECT_NO_THROW(check({})); }

TEST(TrainOptions, EveryNLayersZeroSaysWhatToDo) {
  EXPECT_EQ(refusal([](auto& o) { o.checkpointing.every_n_layers = 0; }),
            "[train] --every-n-layers is 0; it must be at least 1 (1 "
            "recomputes every layer, 2 every second one). Leave out "
            "--gradient-checkpointing to recompute none.");
}

TEST(TrainOptions, NameTheFlagAndTheValue) {
  EXPECT_THAT(refusal([](auto& o) { o.per_device_train_batch_size = 0; }),
              HasSubstr("--per-device-train-batch-size is 0; it must be at "
                        "least 1"));
  EXPECT_THAT(refusal([](auto& o) { o.per_device_eval_batch_size = -3; }),
              HasSubstr("--per-device-eval-batch-size is -3"));
  EXPECT_THAT(refusal([](auto& o) { o.gradient_accumulation_steps = 0; }),
              HasSubstr("--gradient-accumulation-steps is 0"));
  EXPECT_THAT(refusal([](auto& o) { o.max_steps = 0; }),
              HasSubstr("--max-steps is 0"));
  EXPECT_THAT(refusal([](auto& o) { o.eval_steps = -1; }),
              HasSubstr("--eval-steps is -1"));
  EXPECT_THAT(refusal([](auto& o) { o.logging_steps = 0; }),
              HasSubstr("--logging-steps is 0"));
  EXPECT_THAT(refusal([](auto& o) { o.seed = -1; }), HasSubstr("--seed is -1"));
  EXPECT_THAT(refusal([](auto& o) { o.adam_beta2 = 1; }),
              HasSubstr("--adam-beta2 is 1"));
  EXPECT_THAT(refusal([](auto& o) { o.adam_epsilon = 0; }),
              HasSubstr("--adam-epsilon is 0"));
}

TEST(TrainOptions, NanAndInfinityAreRefusedEverywhere) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity(), -1.0}) {
    for (double TrainOptions::*field :
         {&TrainOptions::learning_rate, &TrainOptions::warmup_ratio,
          &TrainOptions::weight_decay, &TrainOptions::max_grad_norm,
          &TrainOptions::adam_beta1, &TrainOptions::adam_beta2,
          &TrainOptions::adam_epsilon, &TrainOptions::num_train_epochs}) {
      EXPECT_THAT(refusal([&](auto& o) { o.*field = bad; }),
                  HasSubstr("it must be"))
          << bad;
    }
  }
}

}  // namespace
}  // namespace remat::train
