#include "remat/plan/solvers/first_sweep.h"

#include <algorithm>
#include <limits>

namespace remat::plan {

FirstSweep::FirstSweep(const Problem& problem, int64_t room)
    : problem_(&problem),
      room_(static_cast<double>(room - loss_bytes(problem))),
      at_(problem.length + 1),
      rest_(problem.length + 1),
      onward_(problem.length + 1),
      before_(problem.length + 1) {
  if (solve(0) <= room_ || room_ <= 0) {
    return;
  }
  // The bytes of the path fall with the price; where they meet the room the
  // bound is best.
  double low = 0;
  double high = (problem.prefix[problem.length] + 1e-300) / room_;
  constexpr int kDoublings = 40;
  for (int i = 0; i < kDoublings && solve(high) > room_; ++i) {
    low = high;
    high *= 2;
  }
  constexpr int kHalvings = 40;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (solve(middle) > room_ ? low : high) = middle;
  }
  solve(low);
  const double below = bound();
  solve(high);
  if (bound() < below) {
    solve(low);
  }
}

double FirstSweep::solve(double price) {
  const std::vector<double>& prefix = problem_->prefix;
  price_ = price;
  // Of the cheapest path on from each boundary, and from what follows it.
  double bytes = 0;
  double best = std::numeric_limits<double>::infinity();
  rest_[problem_->length] = 0;
  for (int j = problem_->length; j > 0; --j) {
    double kept = static_cast<double>(problem_->value[j]);
    at_[j] = prefix[j] + price * kept;
    for (const Keep& keep : problem_->keeps[j]) {
      const auto right = static_cast<double>(keep.right_bytes);
      const double seconds = prefix[j - 1] + keep.extra_seconds + price * right;
      if (seconds < at_[j]) {
        at_[j] = seconds;
        kept = right;
      }
    }
    if (j == problem_->length) {
      best = at_[j];
      bytes = kept;
    } else if (at_[j] + rest_[j] < best) {
      best = at_[j] + rest_[j];
      bytes += kept;
    }
    onward_[j] = best;
    rest_[j - 1] = best - prefix[j - 1];
  }
  before_[0] = 0;
  for (int s = 1; s <= problem_->length; ++s) {
    before_[s] = std::min(before_[s - 1], at_[s] + before_[s - 1] - prefix[s]);
  }
  return bytes;
}

std::vector<int> FirstSweep::reach(double most_excess) const {
  std::vector<int> reach(problem_->length);
  int t = 0;
  for (int s = 0; s < problem_->length; ++s) {
    t = std::max(s, t);
    while (t + 1 < problem_->length && excess_around(s, t + 1) <= most_excess) {
      ++t;
    }
    reach[s] = t;
  }
  return reach;
}

}  // namespace remat::plan
