#include "remat/train/classification_metrics.h"

#include <gtest/gtest.h>

namespace remat::train {
namespace {

TEST(ClassificationMetrics, EqualsValuesComputedByHand) {
  // Class 0: 2 of 3 found, 3 predicted. Class 1: 1 of 2 found, 2 predicted.
  // Class 2: its one text is taken for class 0.
  const auto metrics =
      classification_metrics({0, 0, 0, 1, 1, 2}, {0, 0, 1, 1, 0, 0}, 3);
  EXPECT_DOUBLE_EQ(metrics.accuracy, 3.0 / 6);
  EXPECT_DOUBLE_EQ(metrics.majority_accuracy, 3.0 / 6);
  ASSERT_EQ(metrics.classes.size(), 3u);
  EXPECT_DOUBLE_EQ(metrics.classes[0].precision, 2.0 / 4);
  EXPECT_DOUBLE_EQ(metrics.classes[0].recall, 2.0 / 3);
  EXPECT_DOUBLE_EQ(metrics.classes[0].f1, 4.0 / 7);
  EXPECT_EQ(metrics.classes[0].support, 3);
  EXPECT_DOUBLE_EQ(metrics.classes[1].f1, 2.0 / 4);
  EXPECT_DOUBLE_EQ(metrics.classes[2].precision, 0);
  EXPECT_DOUBLE_EQ(metrics.classes[2].f1, 0);
  EXPECT_DOUBLE_EQ(metrics.macro_f1, (4.0 / 7 + 2.0 / 4 + 0) / 3);
}

TEST(ClassificationMetrics, MacroF1LeavesOutClassesThatNobodyNames) {
  const auto metrics = classification_metrics({0, 1}, {0, 1}, 5);
  EXPECT_DOUBLE_EQ(metrics.macro_f1, 1);
  // A class that is only predicted does count.
  EXPECT_DOUBLE_EQ(classification_metrics({0, 0}, {0, 4}, 5).macro_f1,
                   (2.0 / 3 + 0) / 2);
}

TEST(ClassificationMetrics, OfNothingIsZero) {
  const auto metrics = classification_metrics({}, {}, 2);
  EXPECT_EQ(metrics.accuracy, 0);
  EXPECT_EQ(metrics.macro_f1, 0);
  EXPECT_EQ(metrics.classes.size(), 2u);
}

}  // namespace
}  // namespace remat::train
