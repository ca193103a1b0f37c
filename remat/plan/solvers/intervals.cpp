#include "remat/plan/solvers/intervals.h"

#include <algorithm>
#include <unordered_map>

namespace remat::plan {

Intervals::Intervals(const Problem& problem)
    : Intervals(problem, std::vector<int>(problem.length, problem.length - 1)) {
}

Intervals::Intervals(const Problem& problem, std::vector<int> reach)
    : last_(problem.length), reach_(std::move(reach)) {
  row_.push_back(0);
  for (int s = 0; s < last_; ++s) {
    longest_ = std::max(longest_, reach_[s] - s);
    row_.push_back(row_.back() + static_cast<size_t>(reach_[s] - s) + 2);
  }
  reach_.push_back(last_);
  row_.push_back(row_.back() + 1);
  first_.resize(row_.back());
  index_.resize(row_.back());
  identify(problem);
  for (int s = 0; s <= last_; ++s) {
    const auto number = [&](int t) {
      const int q = first_start(s, t);
      if (q == s) {
        index_[at(s, t)] = count_;
        count_ += problem.variants(t);
      } else {
        index_[at(s, t)] = index_[at(q, t - (s - q))];
      }
    };
    for (int t = s; t <= std::min(reach_[s], last_ - 1); ++t) {
      number(t);
    }
    number(last_);
  }
}

void Intervals::identify(const Problem& problem) {
  for (int s = 0; s <= last_; ++s) {
    first_[at(s, last_)] = s;
  }
  // Two are equal if they are without their last stages, and those are.
  std::vector<int> first(last_);
  bool repeated = true;
  for (int distance = 0; distance <= longest_; ++distance) {
    std::unordered_map<size_t, int> seen;
    bool any = false;
    for (int s = 0; s + distance < last_; ++s) {
      const int t = s + distance;
      if (t > reach_[s]) {
        continue;
      }
      const int before = distance == 0 ? 0 : first[s];
      if (repeated) {
        const size_t key =
            static_cast<size_t>(before) * static_cast<size_t>(last_ + 1) +
            static_cast<size_t>(problem.kind[t]);
        first[s] = seen.emplace(key, s).first->second;
        any = any || first[s] != s;
      } else {
        first[s] = s;
      }
      first_[at(s, t)] = first[s];
    }
    // Longer ones cannot be equal then.
    repeated = any;
  }
}

}  // namespace remat::plan
