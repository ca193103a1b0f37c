// "optimal": the time table on a grid that is exact, or fine enough.
#include <algorithm>
#include <cmath>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/plan/bounds.h"
#include "remat/plan/solvers/effort.h"
#include "remat/plan/solvers/join.h"
#include "remat/plan/solvers/least_memory.h"
#include "remat/plan/solvers/parallel.h"
#include "remat/plan/solvers/rules.h"
#include "remat/plan/solvers/solver.h"
#include "remat/plan/solvers/time_table.h"

namespace remat::plan {
namespace {

// How many plans beyond the first that does not fit are looked at: the peak
// does not quite rise with the units.
constexpr int kBeyond = 4;

// Units of a table against those of the one before, at most.
constexpr double kMostGrowth = 6;

Infeasible infeasible(int64_t least, int64_t budget) {
  return {least, str("no plan needs less than ", format_bytes(least), " (",
                     least, " bytes); the budget is ", format_bytes(budget))};
}

class Optimal {
 public:
  Optimal(const Chain& chain, const SolveOptions& options)
      : chain_(chain),
        options_(options),
        problem_(chain),
        intervals_(problem_),
        effort_(problem_, intervals_, options),
        room_(options.budget_bytes - problem_.base_bytes),
        bound_(least_extra_seconds(chain, options.budget_bytes)) {}

  Result run() {
    if (room_ >= 0 && !exact()) {
      refine();
    }
    if (!best_) {
      const LeastMemory least(problem_, intervals_, effort_.limits().threads);
      if (least.bytes() > options_.budget_bytes) {
        return infeasible(least.bytes(), options_.budget_bytes);
      }
      offer(judge(chain_, options_, least.schedule()));
    }
    if (gap() > 0) {
      // What rounding may have hidden.
      for (const char* rule : {"segments", "binomial"}) {
        SolveOptions options;
        options.budget_bytes = options_.budget_bytes;
        options.solver = rule;
        offer(solve(chain_, options));
      }
    }
    Plan plan = *best_;
    plan.optimality_gap = gap();
    return plan;
  }

 private:
  // A unit that divides all that is kept makes the limit exact. Whether such a
  // table stays within the bounds decides if it is tried.
  bool exact() {
    const int64_t unit = std::max<int64_t>(common_unit(problem_), 1);
    if (!effort_.affordable(room_ / unit)) {
      return false;
    }
    const auto table = fill(unit, room_ / unit, Rounding::kUp);
    if (table == nullptr) {
      return false;
    }
    if (table->least_units() <= table->grid().units) {
      offer(judge(chain_, options_, table->schedule(table->grid().units)));
      bound_ = std::max(bound_, best_->extra_seconds);
    }
    return true;
  }

  // The error of rounding falls as the units rise, so that one table says about
  // how many units the next one takes for the wanted gap.
  void refine() {
    int64_t units = std::min(effort_.first_units(), room_);
    if (units > 0) {
      units = fitting_units(problem_, room_, units);
    }
    bool filled = units > 0 && upper(units);
    while (filled && gap() > options_.gap) {
      const double before = operations_;
      filled = lower(units);
      if (!filled || gap() <= options_.gap || units == room_) {
        return;
      }
      const double wanted = std::clamp(
          1.25 * gap() / std::max(options_.gap, 1e-6), 1.3, kMostGrowth);
      const double left = options_.max_operations - operations_;
      // A table for the lower bound, and sometimes one for plans.
      const double growth =
          std::min(wanted, left / (2 * (operations_ - before) + 1));
      if (growth < 1.2) {
        return;
      }
      units = std::min(
          static_cast<int64_t>(static_cast<double>(units) * growth), room_);
      units = fitting_units(problem_, room_, units);
      if (++rounds_ % 2 == 0 || plans_doubtful_) {
        filled = upper(units);
      }
    }
  }

  // Plans by rounded sizes, for more units than fit as well, as errors cancel.
  bool upper(int64_t units) {
    const int64_t fit = room_ / (room_ / units);
    const auto table =
        fill(room_ / units, fit + fit / 32 + kBeyond, Rounding::kNearest);
    if (table == nullptr) {
      return false;
    }
    int low = table->least_units();
    int high = table->grid().units;
    while (low <= high) {
      const int middle = low + (high - low) / 2;
      if (try_units(*table, middle)) {
        low = middle + 1;
      } else {
        high = middle - 1;
      }
    }
    const int last = std::min(low + kBeyond, table->grid().units);
    for (int m = low + 1; m <= last; ++m) {
      try_units(*table, m);
    }
    return true;
  }

  bool try_units(const TimeTable& table, int units) {
    const Result result = judge(chain_, options_, table.schedule(units));
    offer(result);
    return static_cast<bool>(result);
  }

  bool lower(int64_t units) {
    const int64_t unit = room_ / units;
    const auto table = fill(unit, room_ / unit, Rounding::kDown);
    if (table == nullptr) {
      return false;
    }
    const double extra = table->extra_seconds(table->grid().units);
    if (std::isfinite(extra)) {
      // Single precision may have rounded up.
      bound_ = std::max(bound_, extra * (1 - 1e-6));
    }
    plans_doubtful_ = gap() > 0.1;
    return true;
  }

  std::unique_ptr<TimeTable> fill(int64_t unit, int64_t units,
                                  Rounding rounding) {
    const Grid grid{.unit = unit,
                    .rest = room_ % unit,
                    .units = static_cast<int>(units),
                    .rounding = rounding};
    auto table = TimeTable::fill(problem_, intervals_, grid, effort_.limits());
    operations_ += table == nullptr ? 0 : table->operations();
    return table;
  }

  void offer(const Result& result) {
    if (result && (!best_ || result->seconds < best_->seconds)) {
      best_ = result;
    }
  }

  double gap() const {
    return best_ ? gap_between(best_->extra_seconds, bound_) : 1;
  }

  const Chain& chain_;
  const SolveOptions& options_;
  const Problem problem_;
  const Intervals intervals_;
  const Effort effort_;
  // What is left beside the base.
  const int64_t room_;
  // No plan has less extra time.
  double bound_;
  double operations_ = 0;
  int rounds_ = 0;
  // No plan is within a tenth of the bound: more units may find better ones.
  bool plans_doubtful_ = false;
  Result best_{Infeasible{}};
};

Result solve_joined(const Chain& chain, const SolveOptions& options,
                    int together) {
  const JoinedChain joined(chain, together);
  Result best = Optimal(joined.chain(), options).run();
  if (best) {
    best = judge(chain, options, joined.expand(best->schedule));
  }
  const auto offer = [&](const Result& result) {
    if (result && (!best || result->seconds < best->seconds)) {
      best = result;
    }
  };
  for (const char* rule : {"segments", "binomial"}) {
    SolveOptions by_rule;
    by_rule.budget_bytes = options.budget_bytes;
    by_rule.solver = rule;
    offer(solve(chain, by_rule));
  }
  if (!best) {
    const Problem problem(chain);
    const Intervals intervals(problem);
    const LeastMemory least(problem, intervals, thread_count(options.threads));
    if (least.bytes() > options.budget_bytes) {
      return infeasible(least.bytes(), options.budget_bytes);
    }
    best = judge(chain, options, least.schedule());
  }
  Plan plan = *best;
  plan.coarsened =
      str(chain.length(), " stages were joined to ", joined.chain().length(),
          ": more would take more than max_operations or max_table_bytes");
  return plan;
}

}  // namespace

Result solve_optimal(const Chain& chain, const SolveOptions& options) {
  Result plain = judge(chain, options, keep_all(chain.length()));
  if (plain) {
    return plain;
  }
  const int together = stages_together(chain, options);
  return together == 1 ? Optimal(chain, options).run()
                       : solve_joined(chain, options, together);
}

}  // namespace remat::plan
