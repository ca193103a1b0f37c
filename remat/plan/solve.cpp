#include "remat/plan/solve.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/base/suggest.h"
#include "remat/plan/bounds.h"
#include "remat/plan/simulator.h"
#include "remat/plan/solvers/rules.h"
#include "remat/plan/solvers/solver.h"
#include "remat/plan/solvers/stores.h"

namespace remat::plan {
namespace {

Result solve_keep_all(const Chain& chain, const SolveOptions& options) {
  return judge(chain, options, keep_all(chain.length()));
}

Result solve_recompute_all(const Chain& chain, const SolveOptions& options) {
  return judge(chain, options, recompute_all(chain.length()));
}

Result solve_every_n(const Chain& chain, const SolveOptions& options) {
  if (options.every_n < 1) {
    fail_usage("plan", "every_n is ", options.every_n,
               "; it must be at least 1, for all stages");
  }
  std::vector<bool> recomputed(chain.length());
  for (size_t i = 0; i < recomputed.size(); i += options.every_n) {
    recomputed[i] = true;
  }
  return judge(chain, options, recompute_listed(chain.length(), recomputed));
}

Result solve_layers(const Chain& chain, const SolveOptions& options) {
  std::vector<bool> recomputed(chain.length());
  for (const int layer : options.layers) {
    if (layer < 0 || layer >= chain.length()) {
      fail_usage("plan", "layers names stage ", layer, "; the chain has ",
                 chain.length(), ", counted from 0");
    }
    if (recomputed[layer]) {
      fail_usage("plan", "layers names stage ", layer, " twice");
    }
    recomputed[layer] = true;
  }
  return judge(chain, options, recompute_listed(chain.length(), recomputed));
}

// The fastest that fits of several schedules, else the one with the least peak.
class Best {
 public:
  void offer(Result result) {
    if (empty_ || better(result)) {
      best_ = std::move(result);
      empty_ = false;
    }
  }
  Result take() { return std::move(best_); }

 private:
  bool better(const Result& other) const {
    if (static_cast<bool>(other) != static_cast<bool>(best_)) {
      return static_cast<bool>(other);
    }
    return other ? other->seconds < best_->seconds
                 : other.error().least_bytes < best_.error().least_bytes;
  }

  bool empty_ = true;
  Result best_{Infeasible{}};
};

Result solve_segments(const Chain& chain, const SolveOptions& options) {
  const int stages = chain.length();
  if (options.segments < 0 || options.segments > stages) {
    fail_usage("plan", "segments is ", options.segments,
               "; it must be from 1 to the number of stages, ", stages,
               ", or 0 for the best");
  }
  if (options.segments > 0) {
    return judge(chain, options, equal_segments(stages, options.segments));
  }
  // Of the numbers that make segments of equal length the largest leaves the
  // least for the last one; beyond the square root all lengths differ.
  Best best;
  for (int length = 1; length <= stages; ++length) {
    const int segments = stages / length;
    best.offer(judge(chain, options, equal_segments(stages, segments)));
    if (segments <= length) {
      for (int fewer = segments - 1; fewer >= 1; --fewer) {
        best.offer(judge(chain, options, equal_segments(stages, fewer)));
      }
      break;
    }
  }
  return best.take();
}

Result solve_binomial(const Chain& chain, const SolveOptions& options) {
  const int stages = chain.length();
  if (options.slots < 0) {
    fail_usage("plan", "slots is ", options.slots,
               "; it must be at least 1, the input, or 0 for as many as fit");
  }
  if (options.slots > 0) {
    return judge(chain, options, binomial(stages, options.slots));
  }
  // More slots are faster and, but for odd sizes, larger.
  Result best = judge(chain, options, binomial(stages, 1));
  int low = 1;
  int high = stages;
  while (best && low < high) {
    const int middle = high - (high - low) / 2;
    Result result = judge(chain, options, binomial(stages, middle));
    if (result) {
      best = std::move(result);
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return best;
}

struct Entry {
  SolverInfo info;
  Result (*solve)(const Chain&, const SolveOptions&);
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> kEntries = {
      {{"optimal", "the fastest plan that fits, by dynamic programming"},
       solve_optimal_in_stores},
      {{"segments", "equal segments, the fastest number that fits"},
       solve_segments},
      {{"binomial", "Revolve: optimal for equal stages and so many slots"},
       solve_binomial},
      {{"two-level", "values wait on the device or in a store: H-Revolve"},
       solve_two_level},
      {{"every-n", "recompute stages 0, n, 2n, ..."}, solve_every_n},
      {{"layers", "recompute the stages of a list"}, solve_layers},
      {{"keep-all", "keep every saved state"}, solve_keep_all},
      {{"recompute-all", "keep the input only"}, solve_recompute_all},
  };
  return kEntries;
}

void check_options(const SolveOptions& options) {
  if (options.budget_bytes < 0) {
    fail_usage("plan", "budget_bytes is ", options.budget_bytes,
               "; it must not be negative");
  }
  if (!(options.gap >= 0 && options.gap <= 1)) {
    fail_usage("plan", "gap is ", options.gap, "; it must be from 0 to 1");
  }
  if (options.max_table_bytes < 1 << 20) {
    fail_usage("plan", "max_table_bytes is ", options.max_table_bytes,
               "; it must be at least 1 MiB");
  }
  if (!(options.max_operations >= 1e6)) {
    fail_usage("plan", "max_operations is ", options.max_operations,
               "; it must be at least 1e6");
  }
  if (options.threads < 0) {
    fail_usage("plan", "threads is ", options.threads,
               "; it must be at least 1, or 0 for all processors");
  }
}

}  // namespace

double gap_between(double extra, double bound) {
  // Below what rounding of the sums explains there is no gap.
  return extra - bound > 1e-6 * extra ? (extra - bound) / extra : 0;
}

Result judge(const Chain& chain, const SolveOptions& options,
             Schedule schedule) {
  const Run run = simulate(chain, schedule, /*with_timeline=*/false);
  if (run.peak_bytes > options.budget_bytes) {
    return Infeasible{
        run.peak_bytes,
        str("the plan needs ", format_bytes(run.peak_bytes), " (",
            run.peak_bytes, " bytes) at step ", run.peak_action,
            "; the budget is ", format_bytes(options.budget_bytes))};
  }
  Plan plan;
  plan.schedule = std::move(schedule);
  plan.peak_bytes = run.peak_bytes;
  plan.seconds = run.seconds;
  plan.extra_seconds =
      run.recompute_seconds + run.option_seconds + run.transfer_seconds;
  plan.optimality_gap = gap_between(
      plan.extra_seconds, least_extra_seconds(chain, options.budget_bytes));
  return plan;
}

Result solve(const Chain& chain, const SolveOptions& options) {
  validate(chain);
  check_options(options);
  const auto& all = entries();
  const auto entry = std::find_if(all.begin(), all.end(), [&](const Entry& e) {
    return e.info.name == options.solver;
  });
  if (entry == all.end()) {
    fail_usage("plan", "solver is '", options.solver, "', which is unknown",
               did_you_mean(options.solver, solver_names()));
  }
  const auto start = std::chrono::steady_clock::now();
  Result result = entry->solve(chain, options);
  if (!result) {
    return result;
  }
  Plan plan = *result;
  plan.solver = options.solver;
  plan.solve_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return plan;
}

const std::vector<SolverInfo>& solvers() {
  static const std::vector<SolverInfo> kInfos = [] {
    std::vector<SolverInfo> infos;
    for (const Entry& entry : entries()) {
      infos.push_back(entry.info);
    }
    return infos;
  }();
  return kInfos;
}

std::vector<std::string> solver_names() {
  std::vector<std::string> names;
  for (const SolverInfo& info : solvers()) {
    names.push_back(info.name);
  }
  return names;
}

}  // namespace remat::plan
