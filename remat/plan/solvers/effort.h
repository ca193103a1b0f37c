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
  int64_t most_units() const { return most_; }
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

// All stages of the chain, or how many there may be, neighbours being joined,
// for a table of enough units within the bounds.
int affordable_stages(const Chain& chain, const SolveOptions& options);

}  // namespace remat::plan
