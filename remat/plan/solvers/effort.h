// How fine a table the bounds on memory and time allow.
#pragma once

#include <cstdint>

#include "remat/plan/solve.h"
#include "remat/plan/solvers/problem.h"
#include "remat/plan/solvers/time_table.h"

namespace remat::plan {

class Effort {
 public:
  Effort(const Problem& problem, const Intervals& intervals,
         const SolveOptions& options);

  // Whether a table of so many units certainly stays within the bounds.
  bool affordable(int64_t units) const { return units <= most_; }
  // Units that take a small part of the bound.
  int64_t first_units() const { return first_; }
  const TableLimits& limits() const { return limits_; }

 private:
  TableLimits limits_;
  int64_t most_ = 0;
  int64_t first_ = 0;
};

// The greatest common divisor of all that can be kept; 0 if that is nothing.
int64_t common_unit(const Problem& problem);

}  // namespace remat::plan
