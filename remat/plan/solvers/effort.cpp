#include "remat/plan/solvers/effort.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "remat/plan/solvers/join.h"
#include "remat/plan/solvers/parallel.h"

namespace remat::plan {
namespace {

// With less, what one stage keeps is lost in rounding.
constexpr int64_t kUnitsPerStage = 2;

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
  // Most blocks of most candidates are ruled out.
  constexpr double kComputed = 0.3;
  const double by_time = options.max_operations / (kComputed * candidates);
  const double by_memory = static_cast<double>(options.max_table_bytes) /
                           (4.0 * intervals.count() + 1);
  most_ =
      static_cast<int64_t>(std::clamp(std::min(by_time, by_memory), 1.0, 1e6));
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

int64_t fitting_units(const Problem& problem, int64_t room, int64_t units) {
  // Sizes and how often they occur.
  std::map<int64_t, int> sizes;
  for (int j = 1; j <= problem.length; ++j) {
    ++sizes[problem.value[j]];
    for (const Keep& keep : problem.keeps[j]) {
      ++sizes[keep.left_bytes];
    }
  }
  constexpr size_t kMostSizes = 40;
  if (sizes.size() > kMostSizes) {
    return units;
  }
  int64_t best = units;
  double least = std::numeric_limits<double>::infinity();
  const int64_t most = std::min(units + units / 3, room);
  for (int64_t candidate = units; candidate <= most; ++candidate) {
    // What the sizes lose, rounded down, against the whole.
    const int64_t unit = room / candidate;
    double lost = 0;
    for (const auto& [bytes, count] : sizes) {
      lost += static_cast<double>(bytes % unit) * count;
    }
    if (lost < least) {
      least = lost;
      best = candidate;
    }
  }
  return best;
}

int stages_together(const Chain& chain, const SolveOptions& options,
                    int least) {
  // Joined evenly, stages that repeat go on repeating.
  constexpr int kMostStages = 1000;
  int together = std::max(least, (chain.length() - 1) / kMostStages + 1);
  for (; chain.length() / together > 50; ++together) {
    const Problem problem(JoinedChain(chain, together).chain());
    const Intervals intervals(problem);
    const Effort effort(problem, intervals, options);
    if (effort.affordable(kUnitsPerStage * problem.length) ||
        effort.affordable(options.budget_bytes /
                          std::max<int64_t>(common_unit(problem), 1))) {
      break;
    }
  }
  return together;
}

}  // namespace remat::plan
