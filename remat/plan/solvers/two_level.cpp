#include "remat/plan/solvers/solver.h"

namespace remat::plan {
Result solve_two_level(const Chain& chain, const SolveOptions& options) {
  return solve_optimal(chain, options);
}
}  // namespace remat::plan
