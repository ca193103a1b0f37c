// Plans within what stores hold.
#pragma once

#include <cstdint>
#include <vector>

#include "remat/plan/chain.h"
#include "remat/plan/schedule.h"
#include "remat/plan/solvers/solver.h"

namespace remat::plan {

// Of longer chains the tables with a store take the square of this in memory
// and have too few units to be of use.
inline constexpr int kMostStoreStages = 2000;

// The best plan that keeps to the memory and to the one store, by StoreTable;
// exact where its sizes are, with a gap of 0 then. With `moves_values` values
// may wait in the store, else only what options put there. Chains of at most
// kMostStoreStages.
Result solve_in_store(const Chain& chain, const SolveOptions& options,
                      int store, bool moves_values);

// "optimal": as solve_optimal(), which does not look at what stores hold, and
// where that is too much the best plan that keeps to it.
Result solve_optimal_in_stores(const Chain& chain, const SolveOptions& options);

// Whether an option puts something into a store that is limited.
bool uses_limited_stores(const Chain& chain);

// A chain without such options.
class StrippedChain {
 public:
  explicit StrippedChain(const Chain& chain);

  const Chain& chain() const { return chain_; }
  // The schedule of the stripped chain, for the whole one: ways are counted
  // with all options.
  Schedule expand(Schedule schedule) const;

 private:
  Chain chain_;
  // Of each stage, what the ways were.
  std::vector<std::vector<int16_t>> ways_;
};

// The least budget of solve_optimal_in_stores(): to the byte with one limited
// store of up to 256 units, else that of the chain without limited stores.
int64_t least_bytes_in_stores(const Chain& chain);

}  // namespace remat::plan
