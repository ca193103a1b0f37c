// The exact dynamic program over intervals of stages and memory.
//
// Beaumont et al.'s recurrence for heterogeneous chains (rotor), with each
// memory constraint exact, inputs that need not outlive their stage's forward,
// and several ways to keep a saved state: docs/planner.md states it. The table
// is filled by increasing length, so that values of no bytes do no harm.
//
// Entries are the seconds beyond one plain pass: they are small where memory is
// ample, so a candidate is worth trying only where less is known to be possible
// and few are, and single precision suffices.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "remat/plan/schedule.h"
#include "remat/plan/solvers/first_sweep.h"
#include "remat/plan/solvers/improve.h"
#include "remat/plan/solvers/intervals.h"
#include "remat/plan/solvers/problem.h"

namespace remat::plan {

// How kept bytes become units of memory.
enum class Rounding {
  kUp,    // a plan for so many units fits: an upper bound of the time
  kDown,  // a lower bound of the time
  // To the nearest, the error carried on to the next stage: the best plans, of
  // which a simulation has to say whether they fit.
  kNearest,
};

struct Grid {
  // Bytes of a unit, and how many there are. A limit of m units stands for
  // m * unit + rest bytes.
  int64_t unit = 1;
  int64_t rest = 0;
  int units = 0;
  Rounding rounding = Rounding::kUp;
};

// Which plans a table is for: those of less excess than `excess` over the
// cheapest first sweep and of less than `extra` extra seconds. Of others it may
// know nothing.
struct Wanted {
  // Null: all plans.
  const FirstSweep* sweep = nullptr;
  double excess = 0;
  double extra = 0;
};

struct TableLimits {
  int64_t max_bytes = int64_t{1} << 30;
  double max_operations = std::numeric_limits<double>::infinity();
  int threads = 1;
};

class TimeTable {
 public:
  // Fills the table; problem and intervals must outlive it. Empty where it
  // would go far beyond the limits.
  static std::unique_ptr<TimeTable> fill(const Problem& problem,
                                         const Intervals& intervals,
                                         const Grid& grid, const Wanted& wanted,
                                         const TableLimits& limits);

  // Extra seconds of the whole chain with `units` beside the base, infinity
  // where nothing fits.
  double extra_seconds(int units) const;

  // The fewest units with which the table has a plan; more than grid().units
  // where it has none.
  int least_units() const;

  // A schedule that attains extra_seconds(units), which must be finite.
  Schedule schedule(int units) const;

  const Grid& grid() const { return grid_; }
  int64_t table_bytes() const { return bytes_; }
  // Entries times candidates tried: what filling it took.
  double operations() const { return operations_; }

 private:
  friend class TableFiller;
  friend class TableReader;

  // Entries of one interval and variant, for limits from `least` on; beyond
  // the last one they stay the same.
  struct Row {
    const float* entries = nullptr;
    int least = 0;
    int count = 0;
    // The last entry, so that a row of no use isn't read.
    float last = 0;

    float at(int units) const;
    // The samples stand behind the entries.
    Part part(int from) const { return {entries, entries + count, from}; }
  };

  TimeTable(const Problem& problem, const Intervals& intervals,
            const Grid& grid);

  // What is kept at x_j takes: where more comes before the loss, and where the
  // loss has been.
  int value_units(int j, int t) const {
    return t == problem_.length ? sweep_value_units_[j] : value_units_[j];
  }
  int right_units(int j, size_t k, int t) const {
    return (t == problem_.length ? sweep_right_units_ : right_units_)[j][k];
  }
  const Row& row(int s, int t, int variant) const {
    return rows_[intervals_.index(s, t, variant)];
  }
  // The last boundary at which something can be kept from x_s on.
  int last_boundary(int s, int t) const {
    return t == problem_.length ? intervals_.reach(s) + 1 : t;
  }
  void round(std::vector<int>& value, std::vector<std::vector<int>>& right,
             std::vector<std::vector<int>>& left, bool by_kind) const;
  // The fewest units that stand for so many bytes of one moment.
  int units_for(int64_t bytes) const;

  const Problem& problem_;
  const Intervals& intervals_;
  Grid grid_;
  // Seconds times this are the entries: a power of two, so that whole numbers
  // stay whole.
  double scale_ = 1;
  std::vector<Row> rows_;
  // In units: x_j, and for each keep of j what it takes right and left.
  std::vector<int> value_units_;
  std::vector<std::vector<int>> right_units_;
  std::vector<std::vector<int>> left_units_;
  // The same while the first sweep goes on, where equal stages need not be
  // equal and errors do not add up.
  std::vector<int> sweep_value_units_;
  std::vector<std::vector<int>> sweep_right_units_;
  std::vector<std::vector<std::unique_ptr<float[]>>> chunks_;
  int64_t bytes_ = 0;
  double operations_ = 0;
};

}  // namespace remat::plan
