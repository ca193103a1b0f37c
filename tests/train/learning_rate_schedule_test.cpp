#include "remat/train/learning_rate_schedule.h"

#include <gtest/gtest.h>

namespace remat::train {
namespace {

TEST(LearningRateSchedule, RisesOverTheWarmUpThenFallsToZero) {
  // transformers 4.40, get_linear_schedule_with_warmup(optimizer, 2, 10).
  const double expected[] = {0,   0.5,   1,    0.875, 0.75, 0.625,
                             0.5, 0.375, 0.25, 0.125, 0};
  const LearningRateSchedule schedule(1.0, 0.2, 10);
  EXPECT_EQ(schedule.warmup_steps(), 2);
  for (int64_t step = 0; step <= 10; ++step) {
    EXPECT_DOUBLE_EQ(schedule.at(step), expected[step]) << step;
  }
}

TEST(LearningRateSchedule, WithoutWarmUpBeginsAtThePeak) {
  const LearningRateSchedule schedule(5e-5, 0, 4);
  EXPECT_DOUBLE_EQ(schedule.at(0), 5e-5);
  EXPECT_DOUBLE_EQ(schedule.at(3), 1.25e-5);
}

TEST(LearningRateSchedule, WarmUpIsRoundedUp) {
  EXPECT_EQ(LearningRateSchedule(1, 0.1, 11).warmup_steps(), 2);
  EXPECT_EQ(LearningRateSchedule(1, 0.001, 5).warmup_steps(), 1);
}

TEST(LearningRateSchedule, WarmUpMayTakeTheWholeRun) {
  const LearningRateSchedule schedule(1, 1, 4);
  EXPECT_DOUBLE_EQ(schedule.at(3), 0.75);
  EXPECT_DOUBLE_EQ(schedule.at(4), 0);
}

}  // namespace
}  // namespace remat::train
