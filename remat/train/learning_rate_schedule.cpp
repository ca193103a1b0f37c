#include "remat/train/learning_rate_schedule.h"

#include <algorithm>
#include <cmath>

namespace remat::train {

LearningRateSchedule::LearningRateSchedule(double peak, double warmup_ratio,
                                           int64_t steps)
    : peak_(peak),
      warmup_steps_(static_cast<int64_t>(
          std::ceil(warmup_ratio * static_cast<double>(steps)))),
      steps_(steps) {}

double LearningRateSchedule::at(int64_t step) const {
  if (step < warmup_steps_) {
    return peak_ *
           (static_cast<double>(step) / static_cast<double>(warmup_steps_));
  }
  const int64_t falling = std::max<int64_t>(1, steps_ - warmup_steps_);
  const int64_t left = std::max<int64_t>(0, steps_ - step);
  return peak_ * (static_cast<double>(left) / static_cast<double>(falling));
}

}  // namespace remat::train
