#include "remat/plan/frontier.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "remat/plan/bounds.h"
#include "remat/plan/simulator.h"
#include "remat/plan/solve.h"
#include "remat/plan/solvers/effort.h"
#include "remat/plan/solvers/join.h"
#include "remat/plan/solvers/least_memory.h"
#include "remat/plan/solvers/stores.h"
#include "remat/plan/solvers/time_table.h"

namespace remat::plan {
namespace {

// Divides all that can be on the device at once beside the base.
int64_t exact_unit(const Problem& problem) {
  int64_t unit = common_unit(problem);
  for (int i = 0; i <= problem.length; ++i) {
    unit = std::gcd(unit, problem.forward_workspace[i]);
    for (const int64_t bytes : problem.backward_bytes[i]) {
      unit = std::gcd(unit, bytes);
    }
    for (const Keep& keep : problem.keeps[i]) {
      unit = std::gcd(unit, keep.workspace_bytes);
    }
  }
  return std::max<int64_t>(unit, 1);
}

class Builder {
 public:
  explicit Builder(const Chain& chain) : least_(least_seconds(chain)) {}

  // Keeps only what is faster than with less memory.
  void add(int64_t bytes, double extra) {
    auto& points = frontier_.points;
    if (points.empty() || extra < points.back().extra_seconds - 1e-6 * extra) {
      points.push_back({bytes, least_ + extra, extra});
    }
  }

  Frontier take(bool exact) {
    frontier_.exact = exact;
    return std::move(frontier_);
  }

 private:
  const double least_;
  Frontier frontier_;
};

}  // namespace

Frontier frontier(const Chain& chain, const FrontierOptions& options) {
  validate(chain);
  if (uses_limited_stores(chain)) {
    Frontier found = frontier(StrippedChain(chain).chain(), options);
    found.exact = false;
    return found;
  }
  SolveOptions limits;
  limits.max_table_bytes = options.max_table_bytes;
  limits.max_operations = options.max_operations;
  limits.threads = options.threads;
  limits.budget_bytes = keep_all_bytes(chain);
  const int together = stages_together(chain, limits, 1);
  const bool joined = together > 1;
  const Chain shorter = joined ? JoinedChain(chain, together).chain() : chain;
  const Problem problem(shorter);
  const Intervals intervals(problem);
  const Effort effort(problem, intervals, limits);

  const int64_t room = limits.budget_bytes - problem.base_bytes;
  int64_t unit = exact_unit(problem);
  const bool exact = !joined && effort.affordable(room / unit);
  if (!exact) {
    unit = room / effort.most_units() + 1;
  }
  // Limits are multiples of the unit above what makes the last one the room.
  Grid grid;
  grid.unit = unit;
  grid.units = static_cast<int>(room / unit);
  grid.rest = room % unit;
  const auto table =
      TimeTable::fill(problem, intervals, grid, /*wanted=*/{}, effort.limits());

  Builder builder(chain);
  const Problem real(chain);
  const Intervals real_intervals(real);
  const LeastMemory least(real, real_intervals, effort.limits().threads);
  const auto slowest = simulate(chain, least.schedule(), false);
  if (!exact) {
    builder.add(least.bytes(), slowest.seconds - least_seconds(chain));
  }
  for (int m = 0; table != nullptr && m <= grid.units; ++m) {
    const double extra = table->extra_seconds(m);
    if (std::isfinite(extra)) {
      builder.add(problem.base_bytes + grid.rest + m * unit, extra);
    }
  }
  builder.add(limits.budget_bytes, 0);
  return builder.take(exact && table != nullptr);
}

double seconds_within(const Frontier& frontier, int64_t budget_bytes) {
  const auto& points = frontier.points;
  const auto after =
      std::upper_bound(points.begin(), points.end(), budget_bytes,
                       [](int64_t bytes, const FrontierPoint& point) {
                         return bytes < point.budget_bytes;
                       });
  return after == points.begin() ? std::numeric_limits<double>::infinity()
                                 : std::prev(after)->seconds;
}

}  // namespace remat::plan
