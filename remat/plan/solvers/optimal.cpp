// "optimal": the time table on a grid that is exact, or fine enough.
#include <algorithm>
#include <cmath>
#include <limits>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/plan/bounds.h"
#include "remat/plan/solvers/effort.h"
#include "remat/plan/solvers/first_sweep.h"
#include "remat/plan/solvers/join.h"
#include "remat/plan/solvers/least_memory.h"
#include "remat/plan/solvers/parallel.h"
#include "remat/plan/solvers/rules.h"
#include "remat/plan/solvers/solver.h"
#include "remat/plan/solvers/time_table.h"

namespace remat::plan {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// How many plans beyond the first that does not fit are looked at: the peak
// does not quite rise with the units.
constexpr int kBeyond = 4;

// A first table has so many units; an exact one may have more.
constexpr int64_t kFirstUnits = 4000;
constexpr int64_t kExactUnits = 20000;
constexpr int64_t kFewestUnits = 100;
constexpr int64_t kMostUnits = 1000000;

// Up to this length the table of all intervals costs nothing.
constexpr int kShort = 24;

// Beyond this length what takes its cube in time is out of the question: the
// least memory is that of a joined chain.
constexpr int kLong = 1500;

// With a larger gap than this, joined stages may do better.
constexpr double kPoorGap = 0.1;

class Optimal {
 public:
  Optimal(const Chain& chain, const SolveOptions& options)
      : chain_(chain),
        options_(options),
        problem_(chain),
        threads_(thread_count(options.threads)),
        room_(options.budget_bytes - problem_.base_bytes),
        sweep_(problem_, room_),
        bound_(std::max(sweep_.bound(),
                        least_extra_seconds(chain, options.budget_bytes))) {}

  Result run() {
    if (room_ >= 0) {
      offer_rules();
    }
    if (!best_) {
      Result least = least_memory();
      if (!least) {
        return least;
      }
      offer(std::move(least));
    }
    search();
    Plan plan = *best_;
    plan.optimality_gap = gap();
    return plan;
  }

 private:
  // How much worse than the cheapest first sweep the plans may be that are
  // looked for, and the intervals of stages that such plans can have.
  struct Band {
    double excess;
    Intervals intervals;
  };

  void offer_rules() {
    for (const char* rule : {"segments", "binomial"}) {
      SolveOptions options;
      options.budget_bytes = options_.budget_bytes;
      options.solver = rule;
      // The second tries schedules that are as long as the chain squared.
      if (rule[0] == 's' || problem_.length <= kLong) {
        offer(solve(chain_, options));
      }
    }
  }

  // The plan of least memory, whatever its time.
  Result least_memory() const {
    if (problem_.length <= kLong) {
      return least_memory(chain_, "no plan needs less than ",
                          [](const Schedule& schedule) { return schedule; });
    }
    const JoinedChain joined(chain_, problem_.length / (kLong / 3) + 1);
    return least_memory(
        joined.chain(), "no plan was found that needs less than ",
        [&](const Schedule& schedule) { return joined.expand(schedule); });
  }

  template <class Expand>
  Result least_memory(const Chain& chain, const char* none,
                      const Expand& expand) const {
    const Problem problem(chain);
    const Intervals intervals(problem);
    const LeastMemory least(problem, intervals, threads_);
    if (least.bytes() <= options_.budget_bytes) {
      return judge(chain_, options_, expand(least.schedule()));
    }
    return Infeasible{
        least.bytes(),
        str(none, format_bytes(least.bytes()), " (", least.bytes(),
            " bytes); the budget is ", format_bytes(options_.budget_bytes))};
  }

  // Both the excess of the best plan and the units are found by trying. Too
  // small an excess has no plan and costs little, too large a one costs much.
  // Errors of rounding fall as the units rise.
  void search() {
    const int64_t unit = std::max<int64_t>(common_unit(problem_), 1);
    const int64_t exact_units = room_ / unit;
    int64_t units = exact_units <= kExactUnits ? exact_units : first_units();
    double excess = problem_.length <= kShort ? kInfinite : first_excess();
    bool certain = false;
    while (gap() > (units == exact_units ? 0 : options_.gap)) {
      const bool exact = units == exact_units;
      excess = std::min(excess, needed_excess());
      const double before = operations_;
      std::vector<int> reach = sweep_.reach(excess);
      if (!affordable(reach)) {
        return;
      }
      const Band band{excess, Intervals(problem_, std::move(reach))};
      bool filled = exact ? at_once(band, unit)
                          : upper(band, fitting_units(problem_, room_, units));
      certain = excess >= needed_excess();
      if (filled && !exact && certain && gap() > options_.gap) {
        filled = lower(band, fitting_units(problem_, room_, units));
      }
      const double left = options_.max_operations - operations_;
      if (!filled) {
        if (units <= kFewestUnits) {
          return;
        }
        units = std::max(units / 4, kFewestUnits);
      } else if (!certain) {
        excess *= 3;
      } else if (exact) {
        return;
      } else {
        const double wanted =
            std::clamp(1.25 * gap() / std::max(options_.gap, 1e-6), 1.5, 4.0);
        const double growth =
            std::min(wanted, left / (operations_ - before + 1));
        if (growth < 1.5) {
          return;
        }
        units = static_cast<int64_t>(static_cast<double>(units) * growth);
        units = units > exact_units / 2 ? exact_units : units;
      }
      if (units > kMostUnits || left <= 0) {
        return;
      }
    }
  }

  // So many that a state is a few, even where many fit.
  int64_t first_units() const {
    double state = 1;
    for (int j = 1; j <= problem_.length; ++j) {
      state += static_cast<double>(problem_.keeps[j].front().left_bytes) /
               problem_.length;
    }
    constexpr int kUnitsPerState = 8;
    return std::clamp(static_cast<int64_t>(kUnitsPerState *
                                           static_cast<double>(room_) / state),
                      kFirstUnits, std::min(kMostUnits, room_));
  }

  // That of about two stages that run once more, which is what many chains
  // have.
  double first_excess() const {
    return problem_.prefix[problem_.length] == 0
               ? kInfinite
               : 2 * problem_.prefix[problem_.length] / problem_.length;
  }

  // Whether so many intervals, with nothing in them, take a part of the bound.
  bool affordable(const std::vector<int>& reach) const {
    constexpr int64_t kBytes = 64;
    int64_t intervals = 0;
    for (int s = 0; s < problem_.length; ++s) {
      intervals += reach[s] - s + 2;
    }
    return intervals <= options_.max_table_bytes / kBytes;
  }

  // Better plans than the best one have no more.
  double needed_excess() const {
    return (best_->extra_seconds - sweep_.bound()) * (1 + 1e-6);
  }

  // All that is kept is a multiple of the unit: the plan is the best one, if it
  // is within the excess.
  bool at_once(const Band& band, int64_t unit) {
    const auto table =
        fill(band, unit, room_ / unit, /*rounding=*/Rounding::kUp);
    if (table == nullptr) {
      return false;
    }
    if (table->least_units() <= table->grid().units) {
      try_units(*table, table->grid().units);
    }
    raise_bound(band, best_->extra_seconds);
    return true;
  }

  // Plans by rounded sizes, for more units than fit as well, as errors cancel.
  bool upper(const Band& band, int64_t units) {
    const int64_t fit = room_ / (room_ / units);
    const auto table =
        fill(band, room_ / units, fit + fit / 32 + kBeyond, Rounding::kNearest);
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

  bool lower(const Band& band, int64_t units) {
    const int64_t unit = room_ / units;
    const auto table = fill(band, unit, room_ / unit, Rounding::kDown);
    if (table == nullptr) {
      return false;
    }
    // Each of the sums on the way may have been rounded up to single precision.
    const double rounded = 0x1p-23 * (problem_.length + 1);
    raise_bound(band,
                table->extra_seconds(table->grid().units) * (1 - rounded));
    return true;
  }

  // All plans within the excess take so much extra time, the others more than
  // their excess says.
  void raise_bound(const Band& band, double extra) {
    bound_ = std::max(bound_, std::min(sweep_.bound() + band.excess, extra));
  }

  std::unique_ptr<TimeTable> fill(const Band& band, int64_t unit, int64_t units,
                                  Rounding rounding) {
    const Grid grid{.unit = unit,
                    .rest = room_ % unit,
                    .units = static_cast<int>(units),
                    .rounding = rounding};
    const Wanted wanted{.sweep = &sweep_,
                        .excess = band.excess,
                        .extra = sweep_.bound() + band.excess};
    // That after one that takes too much there is something left for another.
    const TableLimits limits{
        .max_bytes = options_.max_table_bytes,
        .max_operations = (options_.max_operations - operations_) / 2,
        .threads = threads_};
    auto table =
        TimeTable::fill(problem_, band.intervals, grid, wanted, limits);
    operations_ +=
        table == nullptr ? limits.max_operations : table->operations();
    return table;
  }

  void offer(Result result) {
    if (result && (!best_ || result->seconds < best_->seconds)) {
      best_ = std::move(result);
    }
  }

  double gap() const { return gap_between(best_->extra_seconds, bound_); }

  const Chain& chain_;
  const SolveOptions& options_;
  const Problem problem_;
  const int threads_;
  // What is left beside the base.
  const int64_t room_;
  const FirstSweep sweep_;
  // No plan has less extra time.
  double bound_;
  double operations_ = 0;
  Result best_{Infeasible{}};
};

// The plan of a chain of fewer stages, if it is faster than `best`.
Result join(const Chain& chain, const SolveOptions& options, Result best) {
  const int together = stages_together(chain, options, 2);
  const JoinedChain joined(chain, together);
  const Result shorter = Optimal(joined.chain(), options).run();
  if (!shorter) {
    return best;
  }
  const Result other = judge(chain, options, joined.expand(shorter->schedule));
  if (!other || other->seconds >= best->seconds) {
    return best;
  }
  Plan plan = *other;
  plan.optimality_gap = gap_between(
      plan.extra_seconds, best->extra_seconds * (1 - best->optimality_gap));
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
  Result best = Optimal(chain, options).run();
  return best && best->optimality_gap > kPoorGap && chain.length() > kShort
             ? join(chain, options, std::move(best))
             : best;
}

}  // namespace remat::plan
