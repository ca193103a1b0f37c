#include "remat/plan/solvers/time_table.h"

#include <algorithm>
#include <cmath>

namespace remat::plan {
namespace {

// Sizes as units; with kNearest the running sum is rounded, not each size.
class UnitRounder {
 public:
  explicit UnitRounder(const Grid& grid) : grid_(grid) {}

  int operator()(int64_t bytes) {
    int64_t units = 0;
    switch (grid_.rounding) {
      case Rounding::kUp:
        units = bytes / grid_.unit + (bytes % grid_.unit != 0);
        break;
      case Rounding::kDown:
        units = bytes / grid_.unit;
        break;
      case Rounding::kNearest: {
        const int64_t wanted = bytes + owed_;
        units = std::max<int64_t>(wanted + grid_.unit / 2, 0) / grid_.unit;
        owed_ = wanted - units * grid_.unit;
        break;
      }
    }
    return static_cast<int>(std::min<int64_t>(units, grid_.units + 1));
  }

 private:
  const Grid& grid_;
  int64_t owed_ = 0;
};

}  // namespace

float TimeTable::Row::at(int units) const {
  if (count == 0 || units < least) {
    return std::numeric_limits<float>::infinity();
  }
  return entries[std::min(units - least, count - 1)];
}

TimeTable::TimeTable(const Problem& problem, const Intervals& intervals,
                     const Grid& grid)
    : problem_(problem),
      intervals_(intervals),
      grid_(grid),
      rows_(intervals.count()),
      value_units_(problem.length + 1),
      right_units_(problem.length + 1),
      left_units_(problem.length + 1),
      sweep_value_units_(problem.length + 1),
      sweep_right_units_(problem.length + 1) {
  const double forward = problem.prefix[problem.length];
  if (forward > 0) {
    int exponent = 0;
    std::frexp(forward, &exponent);
    scale_ = std::ldexp(1.0, 12 - exponent);
  }
  round(value_units_, right_units_, left_units_, /*by_kind=*/true);
  std::vector<std::vector<int>> left(problem.length + 1);
  round(sweep_value_units_, sweep_right_units_, left, /*by_kind=*/false);
}

void TimeTable::round(std::vector<int>& value,
                      std::vector<std::vector<int>>& right,
                      std::vector<std::vector<int>>& left, bool by_kind) const {
  UnitRounder values(grid_);
  // One rounder a way, so that runs of stages kept the same way add up right.
  std::vector<UnitRounder> states(kMaxWays, UnitRounder(grid_));
  // Equal stages must stay equal: the first of a kind decides.
  std::vector<int> first(problem_.length + 1, 0);
  for (int j = 1; j <= problem_.length; ++j) {
    int& known = first[problem_.kind[j - 1]];
    if (known > 0 && by_kind) {
      value[j] = value[known];
      left[j] = left[known];
      right[j] = right[known];
      continue;
    }
    known = j;
    value[j] = values(problem_.value[j]);
    for (size_t k = 0; k < problem_.keeps[j].size(); ++k) {
      const Keep& keep = problem_.keeps[j][k];
      left[j].push_back(states[k](keep.left_bytes));
      UnitRounder beside(grid_);
      right[j].push_back(keep.right_bytes == keep.left_bytes
                             ? left[j].back()
                             : beside(keep.right_bytes));
    }
  }
}

int TimeTable::units_for(int64_t bytes) const {
  int64_t units = 0;
  if (grid_.rounding == Rounding::kDown) {
    units = bytes / grid_.unit;
  } else if (bytes > grid_.rest) {
    const int64_t beyond = bytes - grid_.rest;
    units = beyond / grid_.unit + (beyond % grid_.unit != 0);
  }
  return static_cast<int>(std::min<int64_t>(units, grid_.units + 1));
}

double TimeTable::extra_seconds(int units) const {
  return row(0, problem_.length, 0).at(units) / scale_;
}

int TimeTable::least_units() const {
  const Row& whole = row(0, problem_.length, 0);
  return whole.count == 0 ? grid_.units + 1 : whole.least;
}

}  // namespace remat::plan
