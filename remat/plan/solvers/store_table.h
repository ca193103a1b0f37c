// The recurrence with memory and a store, both bounded: its times, and the
// least memory it needs.
#pragma once

#include <cstdint>
#include <vector>

#include "remat/plan/schedule.h"
#include "remat/plan/solvers/store_problem.h"

namespace remat::plan {

// Rows for the parts of a chain: by interval, variant, away and store units.
class PartRows {
 public:
  PartRows(const StoreProblem& problem, int64_t store_units)
      : problem_(&problem),
        modes_(problem.moves_values() ? 2 : 1),
        store_units_(store_units) {}

  size_t count() const {
    return static_cast<size_t>(problem_->intervals().count()) * modes_ *
           (store_units_ + 1);
  }
  size_t index(const Part& part) const {
    const size_t interval =
        problem_->intervals().index(part.s, part.t, part.variant);
    return (interval * modes_ + (part.away ? 1 : 0)) * (store_units_ + 1) +
           part.store;
  }
  int modes() const { return modes_; }
  int64_t store_units() const { return store_units_; }

 private:
  const StoreProblem* problem_;
  int modes_;
  int64_t store_units_;
};

// How fine a StoreTable is.
struct StoreSizes {
  StoreGrid grid;
  int64_t memory_units = 0;
  int64_t store_units = 0;
  // Nothing is rounded.
  bool exact = false;
};

// The finest sizes for so much memory beside the base that stay within bounds
// of the table's bytes and of elementary steps. Less than one unit of memory a
// stage are no use: `memory_units` is 0 then.
StoreSizes store_sizes(const StoreProblem& problem, int64_t room,
                       double max_operations, int64_t max_table_bytes);

// Least extra seconds for every limit.
class StoreTable {
 public:
  StoreTable(const StoreProblem& problem, const StoreSizes& sizes, int threads);

  // Infinity where nothing fits.
  double extra_seconds() const;
  // Moves are those of the store of this index.
  Schedule schedule(int store) const;

 private:
  template <class Table>
  friend class StoreReader;

  void fill(int s, int t);
  void fill_alone(const Part& part);
  void fill_split(const Part& part);
  double at(const Part& part) const;
  bool fits(const Part& part) const;
  bool stays(const Part& part) const;
  Choice pick(const Part& part) const;
  float* row(const Part& part) {
    return &seconds_[rows_.index(part) * (sizes_.memory_units + 1)];
  }

  const StoreProblem& problem_;
  const StoreSizes sizes_;
  const StoreGrid& grid_;
  const PartRows rows_;
  std::vector<float> seconds_;
};

// Least memory, to the byte, as far as the store's units are exact.
class StoreLeast {
 public:
  // Takes steps as store_least_steps() says.
  StoreLeast(const StoreProblem& problem, int threads);

  // For the whole chain, base included.
  int64_t bytes() const;
  // A schedule that needs no more, whatever its time.
  Schedule schedule(int store) const;

 private:
  template <class Table>
  friend class StoreReader;

  void fill(int s, int t);
  int64_t alone(const Part& part) const;
  int64_t split(const Part& part) const;
  int64_t at(const Part& part) const;
  bool fits(const Part& part) const { return at(part) <= part.memory; }
  bool stays(const Part& part) const;
  Choice pick(const Part& part) const;

  const StoreProblem& problem_;
  const StoreGrid grid_;
  const PartRows rows_;
  std::vector<int64_t> least_;
};

// Elementary steps of a StoreLeast.
double store_least_steps(const StoreProblem& problem);

}  // namespace remat::plan
