// The least memory in which a chain runs at all, exact to the byte.
#pragma once

#include <cstdint>
#include <vector>

#include "remat/plan/schedule.h"
#include "remat/plan/solvers/intervals.h"
#include "remat/plan/solvers/problem.h"

namespace remat::plan {

// The recurrence of TimeTable with time left out: what the least limit is for
// each interval. Length cubed over six times a few operations.
class LeastMemory {
 public:
  LeastMemory(const Problem& problem, const Intervals& intervals, int threads);

  // For the whole chain, base included.
  int64_t bytes() const;
  // A schedule that needs no more, whatever its time.
  Schedule schedule() const;

 private:
  friend class LeastReader;

  int64_t at(int s, int t, int variant) const {
    return least_[intervals_.index(s, t, variant)];
  }
  int64_t alone(int s, int variant) const;
  int64_t split(int s, int t, int variant) const;

  const Problem& problem_;
  const Intervals& intervals_;
  std::vector<int64_t> least_;
};

}  // namespace remat::plan
