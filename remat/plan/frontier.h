// Time against memory: what every budget buys.
#pragma once

#include <cstdint>
#include <vector>

#include "remat/plan/chain.h"

namespace remat::plan {

struct FrontierPoint {
  // From this budget on (Chain::fixed_bytes included) a run takes `seconds`,
  // of which `extra_seconds` are beyond one plain pass.
  int64_t budget_bytes = 0;
  double seconds = 0;
  double extra_seconds = 0;
};

struct FrontierOptions {
  // Bounds as in SolveOptions. Where they do not allow exact sizes, sizes are
  // rounded up to units.
  int64_t max_table_bytes = int64_t{1} << 30;
  double max_operations = 4e9;
  int threads = 0;
};

struct Frontier {
  // By rising budget and falling time. The first one is of the least budget,
  // the last one has no extra time.
  std::vector<FrontierPoint> points;
  // Whether the points are those of solve() with "optimal" to the byte; if not,
  // each of them is possible, and solve() may find a faster plan for its
  // budget. Never with options that put something into a limited store: those
  // options are left out.
  bool exact = false;
};

// One dynamic program for all budgets. Throws UsageError for an invalid chain.
Frontier frontier(const Chain& chain, const FrontierOptions& options = {});

// The seconds that the frontier promises within the budget; infinity below the
// least one.
double seconds_within(const Frontier& frontier, int64_t budget_bytes);

}  // namespace remat::plan
