// What no plan can beat.
#pragma once

#include <cstdint>

#include "remat/plan/chain.h"

namespace remat::plan {

// Peak of the plain pass that keeps every saved state: from this budget on
// nothing needs to be recomputed.
int64_t keep_all_bytes(const Chain& chain);

// The least budget with which "optimal" has a plan, exact to the byte.
int64_t least_budget(const Chain& chain);

// No plan on the device has less extra time (beyond one plain pass) within the
// budget: while the loss is computed, every stage either has its saved state in
// memory or runs again. The relaxed knapsack of those states.
double least_extra_seconds(const Chain& chain, int64_t budget_bytes);

}  // namespace remat::plan
