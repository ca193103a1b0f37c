#include "remat/train/progress.h"

#include <gtest/gtest.h>

namespace remat::train {
namespace {

TEST(Progress, LineTellsRateAndTimeLeft) {
  StepReport report;
  report.step = 120;
  report.total_steps = 2000;
  report.learning_rate = 1.9e-5;
  report.grad_norm = 1.3;
  EXPECT_EQ(progress_line(report, 0.412, 2.31, 1773, int64_t{4} << 30),
            "step  120/2000  loss 0.412  lr 1.9e-05  gnorm 1.3  2.31 s/step  "
            "1,773 tok/s  peak 4.00 GiB  eta 1h12");
}

TEST(Progress, DurationsNameTwoUnits) {
  EXPECT_EQ(format_duration(0), "0s");
  EXPECT_EQ(format_duration(45.4), "45s");
  EXPECT_EQ(format_duration(725), "12m05");
  EXPECT_EQ(format_duration(4342), "1h12");
  EXPECT_EQ(format_duration(3 * 86400 + 4 * 3600), "3d04h");
}

}  // namespace
}  // namespace remat::train
