// A chain whose values and saved states may wait in one store, in the indices
// of the recurrence (docs/planner.md).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "remat/plan/chain.h"
#include "remat/plan/solvers/intervals.h"
#include "remat/plan/solvers/problem.h"

namespace remat::plan {

// Bytes and what stores hold as whole units, rounded up: what fits in units
// fits in bytes. m units of memory stand for m * unit + rest bytes.
struct StoreGrid {
  int64_t unit = 1;
  int64_t rest = 0;
  int64_t store_unit = 1;

  int64_t memory(int64_t bytes) const {
    return bytes / unit + (bytes % unit > 0 ? 1 : 0);
  }
  int64_t stored(int64_t amount) const {
    return amount / store_unit + (amount % store_unit > 0 ? 1 : 0);
  }
  // The least number that stands for as many bytes.
  int64_t least(int64_t bytes) const {
    return bytes <= rest ? 0 : memory(bytes - rest);
  }
};

// Stages s .. t, forward to backward. The saved state of stage t is there
// already where variant > 0. With `away` x_s is in the store as well as on the
// device, and both are counted; without, x_s is on the device and not counted.
struct Part {
  int s = 0;
  int t = 0;
  int variant = 0;
  bool away = false;
  int64_t memory = 0;
  int64_t store = 0;
};

// What is kept at a boundary inside a part, and the two parts that it makes.
struct Choice {
  int boundary = 0;
  // The state of the stage before the boundary; if none, its value ...
  const Keep* keep = nullptr;
  // ... which may wait in the store.
  bool stored = false;
  double seconds = 0;
  // What the forwards up to the boundary need, as a limit on memory.
  int64_t least = 0;
  Part right;
  Part left;
};

class StoreProblem {
 public:
  // Without `moves_values` the store holds what options put there and nothing
  // else. Options of other stores are used where those are unlimited.
  StoreProblem(const Chain& chain, int store, bool moves_values);

  const Problem& problem() const { return problem_; }
  const Intervals& intervals() const { return intervals_; }
  bool moves_values() const { return moves_values_; }
  // The input may wait in the store, and is then not part of the base.
  bool moves_input() const { return moves_input_; }
  int64_t base_bytes() const { return base_bytes_; }

  // What the store holds at most, in bytes or values; no more than there is to
  // put there. 0, as all amounts, for an unlimited one.
  int64_t capacity() const { return capacity_; }
  int64_t value_amount(int i) const { return value_amounts_[i]; }
  double write_seconds(int i) const { return writes_[i]; }
  // Of a stage's keep, as its backward needs it; false for `usable` where it
  // needs a store that this problem does not know.
  struct Kept {
    int64_t amount = 0;
    bool usable = true;
  };
  const Kept& kept(int boundary, const Keep& keep) const {
    return kept_[boundary][keep.way];
  }

  // Greatest common divisors of what can be kept on the device and put into the
  // store; 0 where that is nothing.
  int64_t memory_unit() const;
  int64_t store_unit() const;

  // All choices for a part of several stages. The parts' memory and store may
  // be negative: then the choice is none.
  void choices(const StoreGrid& grid, const Part& part,
               const std::function<void(const Choice&)>& visit) const;

 private:
  void set_amounts(const Chain& chain, int store);
  void tell_kinds_apart();

  Problem problem_;
  bool moves_values_;
  bool moves_input_;
  int64_t base_bytes_;
  int64_t capacity_ = 0;
  std::vector<int64_t> value_amounts_;
  std::vector<double> writes_;
  std::vector<double> reads_;
  std::vector<std::vector<Kept>> kept_;
  Intervals intervals_;
};

}  // namespace remat::plan
