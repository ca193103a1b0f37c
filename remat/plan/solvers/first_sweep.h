// What the first sweep keeps, with memory at a price instead of a limit.
//
// From the start to the loss a plan goes along a path of boundaries x_j at which
// something is kept. Let a byte that is there while the loss is computed cost
// `price` seconds: the cheapest path, less the price of all the memory there is,
// is a time that no plan of the recurrence can beat (Lagrange's relaxation), for
// any price. What a plan costs more than that path is its excess. A plan that
// is known bounds the excess of all better ones, and so which intervals of
// stages these can recompute at once: mostly short ones.
#pragma once

#include <cstdint>
#include <vector>

#include "remat/plan/solvers/problem.h"

namespace remat::plan {

class FirstSweep {
 public:
  // `room`: bytes beside the base. The price of the best bound.
  FirstSweep(const Problem& problem, int64_t room);
  // At a price. 0: the bound is 0 and the excess is the extra time.
  FirstSweep(const Problem& problem, int64_t room, double price);

  double price() const { return price_; }
  // No plan has less extra seconds.
  double bound() const { return rest_[0] - price_ * room_; }

  // What going from x_s to x_j adds to the excess if the state of stage j - 1
  // is kept, or x_j: never negative. Time to recompute what is between more
  // than once is not counted.
  double excess(int s, int j, const Keep& keep) const {
    return problem_->prefix[j - 1] - problem_->prefix[s] + keep.extra_seconds +
           price_ * static_cast<double>(keep.right_bytes) + rest_[j] - rest_[s];
  }
  double excess(int s, int j) const {
    return problem_->prefix[j] - problem_->prefix[s] +
           price_ * static_cast<double>(problem_->value[j]) + rest_[j] -
           rest_[s];
  }

  // For each stage s the last one of the longest interval from s that is part
  // of any plan of no more than so much excess; for Intervals.
  std::vector<int> reach(double most_excess) const;

 private:
  // The cheapest paths to the loss from each boundary; returns the bytes of
  // the one from the start, the most of those that cost the same.
  double solve(double price);

  const Problem* problem_;
  double room_;
  double price_ = 0;
  // What is kept at x_j at its cheapest, with the forward time up to it.
  std::vector<double> at_;
  std::vector<double> rest_;
};

}  // namespace remat::plan
