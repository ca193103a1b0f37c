// How far a training run is, for the person who waits.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "remat/train/trainer.h"

namespace remat::train {

// "45s", "12m05", "1h12", "3d04h"; seconds is not negative.
std::string format_duration(double seconds);

// step  120/2000  loss 0.412  lr 1.9e-05  gnorm 1.3  2.31 s/step  1,773 tok/s
// peak 3.93 GiB  eta 1h12
std::string progress_line(const StepReport& report, double mean_loss,
                          double seconds_per_step, double tokens_per_second,
                          int64_t peak_bytes);

// On a terminal one line on standard error that moves with every step;
// elsewhere a line every logging_steps steps. Silent if the log level is
// kQuiet.
class Progress {
 public:
  Progress(int64_t logging_steps, bool terminal);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // The loss shown is the mean since the last line, the rates are medians of
  // the last steps.
  void step(const StepReport& report);

  // Ends the moving line, so that something else can be printed.
  void end_line();

 private:
  int64_t logging_steps_;
  bool terminal_;
  bool in_line_ = false;
  std::deque<double> seconds_;
  std::deque<double> rates_;
  double loss_sum_ = 0;
  int64_t losses_ = 0;
};

}  // namespace remat::train
