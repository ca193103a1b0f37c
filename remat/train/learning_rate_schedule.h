// The learning rate of each step.
#pragma once

#include <cstdint>

namespace remat::train {

// Rises linearly from 0 over the first ceil(warmup_ratio * steps) steps, then
// falls linearly to 0: Hugging Face's get_linear_schedule_with_warmup.
class LearningRateSchedule {
 public:
  LearningRateSchedule(double peak, double warmup_ratio, int64_t steps);

  // step counts from 0: with a warm-up the first step has rate 0.
  double at(int64_t step) const;

  int64_t warmup_steps() const { return warmup_steps_; }

 private:
  double peak_;
  int64_t warmup_steps_;
  int64_t steps_;
};

}  // namespace remat::train
