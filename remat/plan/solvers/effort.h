// How fine a table the bounds on memory and time allow.
#pragma once

#include <cstdint>

#include "remat/plan/solve.h"
#include "remat/plan/solvers/intervals.h"
#include "remat/plan/solvers/problem.h"
#include "remat/plan/solvers/time_table.h"

namespace remat::plan {

class Effort {
 public:
  Effort(const Problem& problem, const Intervals& intervals,
         const SolveOptions& options);

  // Whether a table of so many units stays within the bounds: of memory
  // certainly, of time as far as can be known before.
  bool affordable(int64_t units) const { return units <= most_; }
  int64_t most_units() const { return most_; }
  const TableLimits& limits() const { return limits_; }

 private:
  TableLimits limits_;
  int64_t most_ = 0;
};

// The greatest common divisor of all that can be kept; 0 if that is nothing.
int64_t common_unit(const Problem& problem);

// Near so many units for the room, the number whose unit fits the sizes best:
// the fewer kinds of stages there are, the better one does, and where sizes
// repeat so do the errors. Chains of many kinds get `units` back.
int64_t fitting_units(const Problem& problem, int64_t room, int64_t units);

// How many neighbouring stages are to be joined, at least so many, for a table
// of enough units within the bounds.
int stages_together(const Chain& chain, const SolveOptions& options, int least);

}  // namespace remat::plan
