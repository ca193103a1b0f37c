#include "remat/plan/solvers/effort.h"

#include <algorithm>
#include <numeric>

#include "remat/plan/solvers/join.h"
#include "remat/plan/solvers/parallel.h"

namespace remat::plan {
namespace {

// Fewer units than stages make no good plan; the chain is joined to stages for
// which there are that many.
constexpr int64_t kFewestUnits = 400;

}  // namespace

Effort::Effort(const Problem& problem, const Intervals& intervals,
               const SolveOptions& options) {
  limits_.max_bytes = options.max_table_bytes;
  limits_.threads = thread_count(options.threads);
  // Candidates of the whole table, each of which may take a step a unit.
  double candidates = 1;
  for (int t = 0; t <= problem.length; ++t) {
    const size_t keeps = problem.keeps[t].size();
    double shorter = 0;
    for (int s = t; s >= 0; --s) {
      if (intervals.first_start(s, t) == s) {
        shorter += t - s;
      }
    }
    candidates += shorter * static_cast<double>(keeps + 1) *
                  static_cast<double>(problem.variants(t));
  }
  const double by_time = options.max_operations / candidates;
  const double by_memory = static_cast<double>(options.max_table_bytes) /
                           (4.0 * intervals.count() + 1);
  most_ =
      static_cast<int64_t>(std::clamp(std::min(by_time, by_memory), 1.0, 1e6));
  first_ = static_cast<int64_t>(std::clamp(
      std::min(by_time / 64, by_memory / 4), std::min(by_memory, 200.0), 4e4));
}

int64_t common_unit(const Problem& problem) {
  int64_t unit = 0;
  for (int j = 1; j <= problem.length; ++j) {
    unit = std::gcd(unit, problem.value[j]);
    for (const Keep& keep : problem.keeps[j]) {
      unit = std::gcd(std::gcd(unit, keep.left_bytes), keep.right_bytes);
    }
  }
  return unit;
}

int affordable_stages(const Chain& chain, const SolveOptions& options) {
  int groups = chain.length();
  while (groups > 50) {
    const Problem problem(
        groups == chain.length() ? chain : JoinedChain(chain, groups).chain());
    const Intervals intervals(problem);
    const Effort effort(problem, intervals, options);
    if (effort.affordable(kFewestUnits) ||
        effort.affordable(options.budget_bytes /
                          std::max<int64_t>(common_unit(problem), 1))) {
      break;
    }
    groups = groups * 4 / 5;
  }
  return groups;
}

}  // namespace remat::plan
