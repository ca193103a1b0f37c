// The intervals of stages that a recurrence has entries for.
#pragma once

#include <cstddef>
#include <vector>

#include "remat/plan/solvers/problem.h"

namespace remat::plan {

// Intervals with the same contents share an index: a chain of equal or periodic
// stages has few of them.
class Intervals {
 public:
  // All of them, or those that end with the loss or, from stage s, by stage
  // reach[s]. Every part of such an interval is there as well: s <= reach[s],
  // and reach does not fall. One entry a stage, the loss not counted.
  explicit Intervals(const Problem& problem);
  Intervals(const Problem& problem, std::vector<int> reach);

  // The last stage of the longest interval from s that does not end with the
  // loss.
  int reach(int s) const { return reach_[s]; }
  bool contains(int s, int t) const { return t == last_ || t <= reach_[s]; }
  // The longest of these, as a distance of stages.
  int longest() const { return longest_; }

  // The first interval that is the same as s .. t.
  int first_start(int s, int t) const { return first_[at(s, t)]; }
  int count() const { return count_; }
  // Of the table of interval s .. t, variant v.
  int index(int s, int t, int v) const { return index_[at(s, t)] + v; }

 private:
  size_t at(int s, int t) const {
    return t == last_ ? row_[s + 1] - 1 : row_[s] + static_cast<size_t>(t - s);
  }
  // The first of equal intervals, by length; of each what is in first_.
  void identify(const Problem& problem);

  // The loss.
  int last_ = 0;
  int longest_ = 0;
  int count_ = 0;
  std::vector<int> reach_;
  // Where the intervals from s begin; the one that ends with the loss is last.
  std::vector<size_t> row_;
  std::vector<int> first_;
  std::vector<int> index_;
};

}  // namespace remat::plan
