#include "remat/plan/solvers/first_sweep.h"

#include <algorithm>
#include <limits>

namespace remat::plan {

FirstSweep::FirstSweep(const Problem& problem, int64_t room)
    : FirstSweep(problem, room, 0) {
  if (room_ <= 0) {
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

FirstSweep::FirstSweep(const Problem& problem, int64_t room, double price)
    : problem_(&problem),
      room_(static_cast<double>(room - loss_bytes(problem))),
      at_(problem.length + 1),
      rest_(problem.length + 1) {
  solve(price);
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
    rest_[j - 1] = best - prefix[j - 1];
  }
  return bytes;
}

std::vector<int> FirstSweep::reach(double most_excess) const {
  const std::vector<double>& prefix = problem_->prefix;
  const int length = problem_->length;
  // The cheapest way on from any boundary from j on, seen from no stage.
  std::vector<double> onward(length + 1);
  double least = std::numeric_limits<double>::infinity();
  for (int j = length; j > 0; --j) {
    least = std::min(least, at_[j] + rest_[j]);
    onward[j] = least;
  }
  std::vector<int> reach(length);
  // The cheapest way from the start to x_s, less the forward time up to there,
  // and the least of these.
  double here = 0;
  double cheapest = 0;
  int furthest = 0;
  for (int s = 0; s < length; ++s) {
    const double limit = rest_[0] + most_excess - here;
    const auto beyond =
        std::upper_bound(onward.begin() + s + 1, onward.end(), limit);
    furthest = std::max(furthest,
                        static_cast<int>(beyond - onward.begin()) - 2);
    reach[s] = furthest = std::clamp(furthest, s, length - 1);
    here = at_[s + 1] + cheapest - prefix[s + 1];
    cheapest = std::min(cheapest, here);
  }
  return reach;
}

}  // namespace remat::plan
