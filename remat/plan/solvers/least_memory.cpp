#include "remat/plan/solvers/least_memory.h"

#include <algorithm>
#include <limits>

#include "remat/plan/solvers/emit.h"
#include "remat/plan/solvers/parallel.h"

namespace remat::plan {

LeastMemory::LeastMemory(const Problem& problem, const Intervals& intervals,
                         int threads)
    : problem_(problem), intervals_(intervals), least_(intervals.count()) {
  const int last = problem.length;
  for (int distance = 0; distance <= last; ++distance) {
    const double work = static_cast<double>(last - distance) * distance;
    parallel_for(work > 1e5 ? threads : 1, last - distance + 1,
                 [&](int, int s) {
                   const int t = s + distance;
                   if (intervals.first_start(s, t) != s) {
                     return;
                   }
                   for (int v = 0; v < problem.variants(t); ++v) {
                     least_[intervals.index(s, t, v)] =
                         s == t ? alone(s, v) : split(s, t, v);
                   }
                 });
  }
}

int64_t LeastMemory::bytes() const {
  return problem_.base_bytes + at(0, problem_.length, 0);
}

int64_t LeastMemory::alone(int s, int variant) const {
  if (s == problem_.length) {
    return loss_bytes(problem_);
  }
  if (variant > 0) {
    return problem_.backward_bytes[s][variant];
  }
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const Keep& keep : problem_.keeps[s + 1]) {
    least = std::min(least, alone_bytes(problem_, s, keep));
  }
  return least;
}

int64_t LeastMemory::split(int s, int t, int variant) const {
  const int64_t gradient = problem_.value[t + 1];
  int64_t least = std::numeric_limits<int64_t>::max();
  ForwardSteps steps(problem_, s);
  for (int j = s + 1; j <= t; ++j) {
    const int64_t right = at(j, t, variant);
    for (const Keep& keep : problem_.keeps[j]) {
      least = std::min(
          least,
          std::max({gradient + steps.saving(j, keep), right + keep.right_bytes,
                    at(s, j - 1, keep.variant) + keep.left_bytes}));
    }
    const int64_t forward = gradient + steps.advance(j);
    if (forward >= least) {
      break;  // the forwards only grow
    }
    least = std::min(
        least, std::max({forward, right + problem_.value[j], at(s, j - 1, 0)}));
  }
  return least;
}

class LeastReader {
 public:
  explicit LeastReader(const LeastMemory& table)
      : table_(table), problem_(table.problem_), emitter_(problem_.length) {}

  Schedule read() {
    interval(0, problem_.length, 0, table_.at(0, problem_.length, 0));
    return emitter_.take();
  }

 private:
  // Any split that stays within the limit will do.
  void interval(int s, int t, int variant, int64_t limit) {
    while (t > s) {
      const int64_t gradient = problem_.value[t + 1];
      ForwardSteps steps(problem_, s);
      int boundary = 0;
      const Keep* chosen = nullptr;
      for (int j = s + 1; j <= t && boundary == 0; ++j) {
        const int64_t right = table_.at(j, t, variant);
        for (const Keep& keep : problem_.keeps[j]) {
          if (boundary == 0 && gradient + steps.saving(j, keep) <= limit &&
              right + keep.right_bytes <= limit &&
              table_.at(s, j - 1, keep.variant) + keep.left_bytes <= limit) {
            boundary = j;
            chosen = &keep;
          }
        }
        const int64_t forward = gradient + steps.advance(j);
        if (boundary == 0 && forward <= limit &&
            right + problem_.value[j] <= limit &&
            table_.at(s, j - 1, 0) <= limit) {
          boundary = j;
        }
      }
      if (chosen != nullptr) {
        emitter_.advance_saving(s, boundary, *chosen);
        interval(boundary, t, variant, limit - chosen->right_bytes);
        limit -= chosen->left_bytes;
      } else {
        emitter_.advance(s, boundary);
        interval(boundary, t, variant, limit - problem_.value[boundary]);
      }
      variant = chosen != nullptr ? chosen->variant : 0;
      t = boundary - 1;
    }
    const Keep* way = nullptr;
    if (variant == 0 && s < problem_.length) {
      for (const Keep& keep : problem_.keeps[s + 1]) {
        if (alone_bytes(problem_, s, keep) <= limit &&
            (way == nullptr || keep.extra_seconds < way->extra_seconds)) {
          way = &keep;
        }
      }
    }
    emitter_.alone(problem_, s, way);
  }

  const LeastMemory& table_;
  const Problem& problem_;
  Emitter emitter_;
};

Schedule LeastMemory::schedule() const { return LeastReader(*this).read(); }

}  // namespace remat::plan
