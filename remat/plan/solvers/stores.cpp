#include "remat/plan/solvers/stores.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/plan/bounds.h"
#include "remat/plan/simulator.h"
#include "remat/plan/solvers/least_memory.h"
#include "remat/plan/solvers/parallel.h"
#include "remat/plan/solvers/rules.h"
#include "remat/plan/solvers/store_table.h"

namespace remat::plan {
namespace {

// Steps that the search for the least memory may take; it has no bound of its
// own in SolveOptions.
constexpr double kMostLeastSteps = 4e9;

// Prices are doubled until a plan fits, then halved between.
constexpr int kDoublings = 40;
constexpr int kHalvings = 12;

bool limited(const Store& store) {
  return store.capacity_bytes != kUnlimited ||
         store.capacity_values != kUnlimited;
}

std::set<int> limited_stores(const Chain& chain) {
  std::set<int> stores;
  for (const Stage& stage : chain.stages) {
    for (const StageOption& option : stage.options) {
      if (option.store >= 0 && limited(chain.stores[option.store])) {
        stores.insert(option.store);
      }
    }
  }
  return stores;
}

Chain with_unlimited_stores(const Chain& chain) {
  Chain unlimited = chain;
  for (Store& store : unlimited.stores) {
    store.capacity_bytes = kUnlimited;
    store.capacity_values = kUnlimited;
  }
  return unlimited;
}

// Whether the schedule, which is right but for that, keeps to the stores.
bool keeps_to_stores(const Chain& chain, const Chain& unlimited,
                     const Schedule& schedule) {
  const Run run = simulate(unlimited, schedule, /*with_timeline=*/false);
  for (size_t i = 0; i < chain.stores.size(); ++i) {
    if (run.stores[i].peak_bytes > chain.stores[i].capacity_bytes ||
        run.stores[i].peak_values > chain.stores[i].capacity_values) {
      return false;
    }
  }
  return true;
}

Infeasible infeasible(int64_t least, int64_t budget) {
  return {least, str("no plan needs less than ", format_bytes(least), " (",
                     least, " bytes); the budget is ", format_bytes(budget))};
}

// The plan of the least memory with nothing in limited stores.
Result least_without_stores(const Chain& chain, const SolveOptions& options) {
  const StrippedChain stripped(chain);
  const Problem problem(stripped.chain());
  const Intervals intervals(problem);
  const LeastMemory least(problem, intervals, thread_count(options.threads));
  if (least.bytes() > options.budget_bytes) {
    return infeasible(least.bytes(), options.budget_bytes);
  }
  return judge(chain, options, stripped.expand(least.schedule()));
}

// Limits on stores as a price: what is stored takes so many seconds more, the
// more of the store the longer, until little enough is stored.
class Prices {
 public:
  Prices(const Chain& chain, const SolveOptions& options)
      : chain_(chain), unlimited_(with_unlimited_stores(chain)) {
    options_ = options;
    options_.max_operations = std::max(1e6, options.max_operations / kHalvings);
  }

  std::optional<Plan> run() {
    double high = std::max(least_seconds(chain_), 1e-9);
    bool found = fits(high);
    for (int i = 0; i < kDoublings && !found; ++i) {
      high *= 2;
      found = fits(high);
    }
    double low = 0;
    for (int i = 0; i < kHalvings && found; ++i) {
      const double middle = low + (high - low) / 2;
      (fits(middle) ? high : low) = middle;
    }
    return best_;
  }

 private:
  // `price`: seconds for the whole of a store.
  bool fits(double price) {
    Chain priced = unlimited_;
    for (Stage& stage : priced.stages) {
      for (StageOption& option : stage.options) {
        if (option.store >= 0 && limited(chain_.stores[option.store])) {
          option.extra_backward_seconds = std::min(
              1e12, option.extra_backward_seconds + price * share(option));
        }
      }
    }
    const Result result = solve_optimal(priced, options_);
    if (!result || !keeps_to_stores(chain_, unlimited_, result->schedule)) {
      return false;
    }
    const Result real = judge(chain_, options_, result->schedule);
    if (real && (!best_ || real->seconds < best_->seconds)) {
      best_ = *real;
    }
    return true;
  }

  double share(const StageOption& option) const {
    const Store& store = chain_.stores[option.store];
    const bool by_values = store.capacity_values != kUnlimited;
    const auto amount = by_values ? 1.0 : double(option.stored_bytes);
    const auto all =
        double(by_values ? store.capacity_values : store.capacity_bytes);
    return amount / std::max(all, 1.0);
  }

  const Chain& chain_;
  const Chain unlimited_;
  SolveOptions options_;
  std::optional<Plan> best_;
};

}  // namespace

Result solve_in_store(const Chain& chain, const SolveOptions& options,
                      int store, bool moves_values) {
  const StoreProblem problem(chain, store, moves_values);
  const int threads = thread_count(options.threads);
  const int64_t room = options.budget_bytes - problem.base_bytes();
  Result best{Infeasible{}};
  StoreSizes sizes;
  if (room >= 0) {
    sizes = store_sizes(problem, room, options.max_operations,
                        options.max_table_bytes);
    if (sizes.exact || sizes.memory_units > 0) {
      const StoreTable table(problem, sizes, threads);
      if (table.extra_seconds() < std::numeric_limits<double>::infinity()) {
        best = judge(chain, options, table.schedule(store));
      }
    }
  }
  if (!best && store_least_steps(problem) <= kMostLeastSteps) {
    const StoreLeast least(problem, threads);
    if (least.bytes() > options.budget_bytes) {
      return infeasible(least.bytes(), options.budget_bytes);
    }
    best = judge(chain, options, least.schedule(store));
  } else if (!best) {
    best = least_without_stores(chain, options);
  }
  if (best && sizes.exact) {
    Plan plan = *best;
    plan.optimality_gap = 0;
    return plan;
  }
  return best;
}

bool uses_limited_stores(const Chain& chain) {
  return !limited_stores(chain).empty();
}

StrippedChain::StrippedChain(const Chain& chain) : chain_(chain) {
  for (Stage& stage : chain_.stages) {
    std::vector<StageOption> left;
    std::vector<int16_t> ways = {0};
    for (size_t k = 0; k < stage.options.size(); ++k) {
      const StageOption& option = stage.options[k];
      if (option.store < 0 || !limited(chain.stores[option.store])) {
        left.push_back(option);
        ways.push_back(static_cast<int16_t>(k + 1));
      }
    }
    stage.options = left;
    ways_.push_back(ways);
  }
}

Schedule StrippedChain::expand(Schedule schedule) const {
  for (Action& action : schedule.actions) {
    if (action.kind == ActionKind::kForwardSave) {
      action.way = ways_[action.stage][action.way];
    }
  }
  return schedule;
}

Result solve_optimal_in_stores(const Chain& chain,
                               const SolveOptions& options) {
  const std::set<int> stores = limited_stores(chain);
  if (stores.empty()) {
    return solve_optimal(chain, options);
  }
  const Chain unlimited = with_unlimited_stores(chain);
  const Result free = solve_optimal(unlimited, options);
  if (free && keeps_to_stores(chain, unlimited, free->schedule)) {
    return free;
  }
  Result best{Infeasible{}};
  if (stores.size() == 1 && chain.length() <= kMostStoreStages) {
    best = solve_in_store(chain, options, *stores.begin(),
                          /*moves_values=*/false);
    if (!best || best->optimality_gap == 0) {
      return best;
    }
  }
  const auto offer = [&](const Result& result) {
    if (result && (!best || result->seconds < best->seconds)) {
      best = result;
    }
  };
  const StrippedChain stripped(chain);
  const Result alone = solve_optimal(stripped.chain(), options);
  if (alone) {
    offer(judge(chain, options, stripped.expand(alone->schedule)));
  }
  if (const auto priced = Prices(chain, options).run()) {
    offer(*priced);
  }
  if (!best) {
    best = least_without_stores(chain, options);
  }
  if (best && free) {
    // With more room in the stores nothing is faster than this.
    Plan plan = *best;
    plan.optimality_gap =
        std::min(plan.optimality_gap,
                 gap_between(plan.extra_seconds,
                             free->extra_seconds * (1 - free->optimality_gap)));
    return plan;
  }
  return best;
}

int64_t least_bytes_in_stores(const Chain& chain) {
  const std::set<int> stores = limited_stores(chain);
  if (stores.size() == 1 && chain.length() <= kMostStoreStages) {
    const StoreProblem problem(chain, *stores.begin(), /*moves_values=*/false);
    if (store_least_steps(problem) <= kMostLeastSteps) {
      return StoreLeast(problem, thread_count(0)).bytes();
    }
  }
  const Problem problem(StrippedChain(chain).chain());
  const Intervals intervals(problem);
  return LeastMemory(problem, intervals, thread_count(0)).bytes();
}

}  // namespace remat::plan
