// What solvers share: the judge, and how each is called.
#pragma once

#include <functional>

#include "remat/plan/solve.h"

namespace remat::plan {

// The plan that a schedule makes, or Infeasible where simulate() finds its peak
// beyond the budget. The gap is that to least_extra_seconds().
Result judge(const Chain& chain, const SolveOptions& options,
             Schedule schedule);

// The share of `extra` that is above `bound`.
double gap_between(double extra, double bound);

// The chain is valid and the options that all solvers share are in range.
Result solve_optimal(const Chain& chain, const SolveOptions& options);
Result solve_two_level(const Chain& chain, const SolveOptions& options);

}  // namespace remat::plan
