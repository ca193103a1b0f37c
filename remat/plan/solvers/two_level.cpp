// "two-level": values on the device and in a store, by slots or by bytes.
#include <algorithm>
#include <optional>

#include "remat/base/error.h"
#include "remat/plan/bounds.h"
#include "remat/plan/solvers/parallel.h"
#include "remat/plan/solvers/rules.h"
#include "remat/plan/solvers/solver.h"
#include "remat/plan/solvers/stores.h"
#include "remat/plan/solvers/two_level_slots.h"

namespace remat::plan {
namespace {

// Longer chains get the number of slots that fits with nothing in the store,
// and its neighbours: a table for each step of a bisection would take too long.
constexpr int kMostBisected = kMostStoreStages;

class TwoLevelSolver {
 public:
  TwoLevelSolver(const Chain& chain, const SolveOptions& options)
      : chain_(chain), options_(options), store_(chain.stores[options.store]) {
    const int n = chain.length();
    levels_.stages = n;
    levels_.holds_input = chain.holds_input;
    levels_.forward = forward_seconds(chain) / n;
    int64_t largest = 0;
    for (int i = 0; i < n; ++i) {
      const int64_t bytes = chain.value_bytes(i);
      levels_.write += write_seconds(store_, bytes) / n;
      levels_.read += read_seconds(store_, bytes) / n;
      largest = std::max(largest, bytes);
    }
    levels_.store_slots = store_.capacity_values;
    if (store_.capacity_bytes != kUnlimited && largest > 0) {
      levels_.store_slots = store_.capacity_bytes / largest;
    }
  }

  // The most slots that fit; nothing where none do.
  std::optional<Plan> most_slots() {
    const int least = least_slots();
    if (chain_.length() <= kMostBisected) {
      bisect(least, chain_.length());
    } else {
      const int slots = slots_without_store();
      for (const int some : {slots + 1, slots, slots - 1, least}) {
        if (!best_ && some >= least) {
          fits(some);
        }
      }
    }
    return best_;
  }

  // With fewer there is no plan: the input alone needs a slot where it is held,
  // and without room in the store nothing can wait but on the device.
  int least_slots() const {
    return chain_.holds_input || levels_.store_slots == 0 ? 1 : 0;
  }

  Result with_slots(int slots) const {
    TwoLevels levels = levels_;
    levels.slots = std::min(slots, chain_.length());
    const TwoLevelSlots table(levels, options_.max_operations);
    Result result = judge(chain_, options_, table.schedule(options_.store));
    if (!result || !table.limited()) {
      return result;
    }
    Plan plan = *result;
    plan.coarsened = str("fewer values were let into the store ",
                         options_.store, " (", store_.name,
                         ") than it holds: more would take more than "
                         "max_operations");
    return plan;
  }

 private:
  bool fits(int slots) {
    Result result = with_slots(slots);
    if (!result) {
      return false;
    }
    if (!best_ || result->seconds < best_->seconds) {
      best_ = *result;
    }
    return true;
  }

  // More slots are faster and, but for odd sizes, larger.
  void bisect(int low, int high) {
    if (!fits(low)) {
      return;
    }
    while (low < high) {
      const int middle = high - (high - low) / 2;
      if (fits(middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
  }

  int slots_without_store() const {
    int low = 1;
    int high = chain_.length();
    while (low < high) {
      const int middle = high - (high - low) / 2;
      if (judge(chain_, options_, binomial(chain_.length(), middle))) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  const Chain& chain_;
  const SolveOptions& options_;
  const Store& store_;
  TwoLevels levels_;
  std::optional<Plan> best_;
};

}  // namespace

Result solve_two_level(const Chain& chain, const SolveOptions& options) {
  const int stores = static_cast<int>(chain.stores.size());
  if (stores == 0) {
    fail_usage("plan", "solver two-level needs a store; the chain has none");
  }
  if (options.store < 0 || options.store >= stores) {
    fail_usage("plan", "store is ", options.store, "; the chain has ", stores,
               ", counted from 0");
  }
  if (options.slots < 0) {
    fail_usage("plan", "slots is ", options.slots,
               "; it must be at least 1, or 0 for as many as fit");
  }
  TwoLevelSolver by_slots(chain, options);
  if (options.slots > 0) {
    return by_slots.with_slots(options.slots);
  }
  Result plain = judge(chain, options, keep_all(chain.length()));
  if (plain) {
    return plain;
  }
  const std::optional<Plan> slots = by_slots.most_slots();
  if (chain.length() > kMostStoreStages) {
    return slots ? Result(*slots) : by_slots.with_slots(by_slots.least_slots());
  }
  // Where bytes cannot be exact, slots may be faster.
  Result best = solve_in_store(chain, options, options.store,
                               /*moves_values=*/true);
  if (slots && (!best || slots->seconds < best->seconds)) {
    return *slots;
  }
  return best;
}

}  // namespace remat::plan
