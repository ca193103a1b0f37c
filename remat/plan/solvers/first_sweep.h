// What the first sweep keeps, with memory at a price instead of a limit.
//
// From the start to the loss a plan goes along a path of boundaries x_j at
// which something is kept. Let a byte that is there while the loss is computed
// cost `price` seconds: the cheapest path, less the price of all the memory
// there is, is a time that no plan of the recurrence can beat (Lagrange's
// relaxation), for any price. What a plan costs more than that path is its
// excess. A plan that is known bounds the excess of all better ones, and so
// which intervals of stages these can recompute at once: mostly short ones.
#pragma once

#include <cstdint>
#include <vector>

#include "remat/plan/solvers/problem.h"

namespace remat::plan {

class FirstSweep {
 public:
  // `room`: bytes beside the base. The price of the best bound.
  FirstSweep(const Problem& problem, int64_t room);

  double price() const { return price_; }
  // No plan has less extra seconds.
  double bound() const { return rest_[0] - price_ * room_; }

  // The least excess of plans that compute stages s .. t, none of them the
  // loss, as a part of the backward, without the time for that part itself. It
  // rises with t, and falls with s.
  double excess_around(int s, int t) const {
    return before_[s] + onward_[t + 1] - rest_[0];
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
  // The cheapest way from any boundary from j on to the loss, and from the
  // start to any boundary up to x_s less the forward time up to there.
  std::vector<double> onward_;
  std::vector<double> before_;
};

}  // namespace remat::plan
