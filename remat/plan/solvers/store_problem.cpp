#include "remat/plan/solvers/store_problem.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace remat::plan {

StoreProblem::StoreProblem(const Chain& chain, int store, bool moves_values)
    : problem_(chain),
      moves_values_(moves_values),
      moves_input_(moves_values && !chain.holds_input),
      base_bytes_(chain.fixed_bytes + (moves_input_ ? 0 : chain.input_bytes)),
      intervals_((set_amounts(chain, store), tell_kinds_apart(), problem_)) {}

void StoreProblem::set_amounts(const Chain& chain, int store) {
  const Store& limits = chain.stores[store];
  const auto limited = [](const Store& one) {
    return one.capacity_bytes != kUnlimited ||
           one.capacity_values != kUnlimited;
  };
  const auto amount = [&](int64_t bytes) -> int64_t {
    return !limited(limits)                      ? 0
           : limits.capacity_values < kUnlimited ? 1
                                                 : bytes;
  };
  int64_t all = 0;
  for (int i = 0; i <= problem_.length; ++i) {
    const int64_t bytes = chain.value_bytes(i);
    value_amounts_.push_back(amount(bytes));
    writes_.push_back(plan::write_seconds(limits, bytes));
    reads_.push_back(plan::read_seconds(limits, bytes));
    all += moves_values_ ? value_amounts_.back() : 0;
  }
  kept_.resize(problem_.length + 1);
  for (int j = 1; j <= problem_.length; ++j) {
    kept_[j].push_back({});
    int64_t most = 0;
    for (const StageOption& option : chain.stages[j - 1].options) {
      Kept kept;
      if (option.store == store) {
        kept.amount = amount(option.stored_bytes);
        most = std::max(most, kept.amount);
      } else if (option.store >= 0) {
        kept.usable = !limited(chain.stores[option.store]);
      }
      kept_[j].push_back(kept);
    }
    all += most;
  }
  if (limited(limits)) {
    capacity_ = std::min({limits.capacity_bytes, limits.capacity_values, all});
  }
}

void StoreProblem::tell_kinds_apart() {
  std::map<std::vector<int64_t>, int> seen;
  for (int i = 0; i < problem_.length; ++i) {
    std::vector<int64_t> contents = {problem_.kind[i]};
    for (const Kept& kept : kept_[i + 1]) {
      contents.insert(contents.end(), {kept.amount, kept.usable ? 1 : 0});
    }
    problem_.kind[i] = seen.emplace(contents, seen.size()).first->second;
  }
  problem_.kind.back() = static_cast<int>(seen.size());
}

int64_t StoreProblem::memory_unit() const {
  int64_t unit = moves_input_ ? problem_.value[0] : 0;
  for (int j = 1; j <= problem_.length; ++j) {
    unit = std::gcd(unit, problem_.value[j]);
    for (const Keep& keep : problem_.keeps[j]) {
      unit = std::gcd(std::gcd(unit, keep.left_bytes), keep.right_bytes);
    }
  }
  return unit;
}

int64_t StoreProblem::store_unit() const {
  int64_t unit = 0;
  for (int j = 0; j <= problem_.length; ++j) {
    unit = std::gcd(unit, moves_values_ ? value_amounts_[j] : 0);
    for (const Kept& kept : kept_[j]) {
      unit = std::gcd(unit, kept.amount);
    }
  }
  return unit;
}

void StoreProblem::choices(
    const StoreGrid& grid, const Part& part,
    const std::function<void(const Choice&)>& visit) const {
  const int s = part.s;
  const int64_t gradient = problem_.value[part.t + 1];
  // x_s leaves the device with its first forward and comes back for the left
  // part; its place in the store stays taken until then.
  const int64_t start = part.away ? problem_.value[s] : 0;
  const int64_t taken = part.away ? grid.stored(value_amounts_[s]) : 0;
  const double back = part.away ? reads_[s] : 0;
  int64_t most = 0;
  Choice choice;
  choice.right = part;
  choice.left = part;
  for (int j = s + 1; j <= part.t; ++j) {
    const int64_t input = j - 1 > s ? problem_.value[j - 1] : start;
    choice.boundary = j;
    choice.right.s = j;
    choice.left.t = j - 1;
    choice.stored = false;
    choice.right.away = false;
    for (const Keep& keep : problem_.keeps[j]) {
      const Kept& stored = kept(j, keep);
      if (!stored.usable) {
        continue;
      }
      const int64_t amount = grid.stored(stored.amount);
      choice.keep = &keep;
      choice.seconds = problem_.prefix[j - 1] - problem_.prefix[s] +
                       keep.extra_seconds + back;
      choice.least =
          grid.least(gradient + std::max(most, input + keep.right_bytes +
                                                   keep.workspace_bytes));
      choice.right.memory = part.memory - grid.memory(keep.right_bytes);
      choice.right.store = part.store - taken - amount;
      choice.left.memory = part.memory - grid.memory(keep.left_bytes);
      choice.left.store = part.store - amount;
      choice.left.variant = keep.variant;
      visit(choice);
    }
    most = std::max(
        most, input + problem_.value[j] + problem_.forward_workspace[j - 1]);
    choice.keep = nullptr;
    choice.seconds = problem_.prefix[j] - problem_.prefix[s] + back;
    choice.least = grid.least(gradient + most);
    choice.right.memory = part.memory - grid.memory(problem_.value[j]);
    choice.right.store = part.store - taken;
    choice.left.memory = part.memory;
    choice.left.store = part.store;
    choice.left.variant = 0;
    visit(choice);
    if (moves_values_ && j < problem_.length) {
      choice.stored = true;
      choice.right.away = true;
      choice.right.memory = part.memory;
      choice.seconds += writes_[j];
      visit(choice);
    }
  }
}

}  // namespace remat::plan
