#include "remat/train/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "remat/base/bytes.h"
#include "remat/base/log.h"
#include "remat/memory/process.h"

namespace remat::train {
namespace {

constexpr size_t kWindow = 20;

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[320];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

double median(const std::deque<double>& window) {
  std::vector<double> values(window.begin(), window.end());
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void push(std::deque<double>& window, double value) {
  window.push_back(value);
  if (window.size() > kWindow) {
    window.pop_front();
  }
}

}  // namespace

std::string format_duration(double seconds) {
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 60) {
    return format("%llds", whole);
  }
  if (whole < 3600) {
    return format("%lldm%02lld", whole / 60, whole % 60);
  }
  if (whole < 86400) {
    return format("%lldh%02lld", whole / 3600, whole / 60 % 60);
  }
  return format("%lldd%02lldh", whole / 86400, whole / 3600 % 24);
}

std::string progress_line(const StepReport& report, double mean_loss,
                          double seconds_per_step, double tokens_per_second,
                          int64_t peak_bytes) {
  const double left =
      seconds_per_step * static_cast<double>(report.total_steps - report.step);
  const std::string total =
      format("%lld", static_cast<long long>(report.total_steps));
  return format("step %*lld/%s  loss %.3f  lr %.1e  gnorm %.2g  ",
                static_cast<int>(total.size()),
                static_cast<long long>(report.step), total.c_str(), mean_loss,
                report.learning_rate, report.grad_norm) +
         format(seconds_per_step < 0.1 ? "%.3f s/step  " : "%.2f s/step  ",
                seconds_per_step) +
         format_thousands(std::llround(tokens_per_second)) + " tok/s  peak " +
         format_bytes(peak_bytes) + "  eta " + format_duration(left);
}

Progress::Progress(int64_t logging_steps, bool terminal)
    : logging_steps_(logging_steps), terminal_(terminal) {}

Progress::~Progress() { end_line(); }

void Progress::step(const StepReport& report) {
  push(seconds_, report.seconds);
  push(rates_, static_cast<double>(report.tokens) / report.seconds);
  loss_sum_ += report.loss;
  ++losses_;
  const bool is_line =
      report.step % logging_steps_ == 0 || report.step == report.total_steps;
  if (log_level() != LogLevel::kQuiet && (terminal_ || is_line)) {
    const std::string line =
        progress_line(report, loss_sum_ / static_cast<double>(losses_),
                      median(seconds_), median(rates_), peak_resident_bytes());
    std::fprintf(stderr, terminal_ ? "\r%s\x1b[K" : "%s\n", line.c_str());
    std::fflush(stderr);
    in_line_ = terminal_;
  }
  if (is_line) {
    loss_sum_ = 0;
    losses_ = 0;
  }
}

void Progress::end_line() {
  if (in_line_) {
    std::fputc('\n', stderr);
    in_line_ = false;
  }
}

}  // namespace remat::train
