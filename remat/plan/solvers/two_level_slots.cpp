#include "remat/plan/solvers/two_level_slots.h"

#include <algorithm>
#include <limits>

#include "remat/plan/chain.h"
#include "remat/plan/solvers/emit.h"
#include "remat/plan/solvers/rules.h"

namespace remat::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

TwoLevelSlots::TwoLevelSlots(const TwoLevels& levels, double max_operations)
    : levels_(levels) {
  const int n = levels.stages;
  unlimited_ = levels.store_slots >= n;
  const double square = 0.5 * n * n;
  int rows = 1;
  if (!unlimited_) {
    const int affordable = static_cast<int>(
        std::clamp(max_operations / square, 1.0, static_cast<double>(n)));
    limited_ = levels.store_slots > affordable;
    rows =
        1 + static_cast<int>(std::min<int64_t>(levels.store_slots, affordable));
  }
  // Where the input is held one slot less is free for all that comes after it.
  const int slots = levels.slots - (levels.holds_input ? 1 : 0);
  entered_.assign(rows, std::vector<double>(n + 1, 0));
  placed_ = entered_;
  for (int row = 0; row < rows; ++row) {
    const bool store = unlimited_ || row > 0;
    for (int length = 2; length <= n; ++length) {
      double best = revolve(length, slots);
      double& placed = placed_[row][length];
      placed = best;
      for (int j = 1; store && j < length; ++j) {
        placed = std::min(placed, through(length, row, j));
      }
      entered_[row][length] =
          store ? std::min(best, levels.write + placed) : best;
    }
  }
  if (levels.holds_input) {
    held_.assign(n + 1, 0);
    for (int length = 2; length <= n; ++length) {
      held_[length] = revolve(length, levels.slots);
      for (int j = 1; j < length; ++j) {
        held_[length] = std::min(held_[length], through_held(length, j));
      }
    }
  }
}

double TwoLevelSlots::revolve(int length, int slots) const {
  if (length == 1) {
    return 0;
  }
  return slots < 1 ? kNever
                   : levels_.forward *
                         static_cast<double>(binomial_advances(length, slots));
}

double TwoLevelSlots::through(int length, int row, int j) const {
  return j * levels_.forward + entered_[fewer(row)][length - j] + levels_.read +
         placed_[row][j];
}

double TwoLevelSlots::through_held(int length, int j) const {
  return j * levels_.forward + entered_.back()[length - j] + held_[j];
}

int TwoLevelSlots::split_placed(int length, int row) const {
  const int slots = levels_.slots - (levels_.holds_input ? 1 : 0);
  double best = revolve(length, slots);
  int split = 0;
  for (int j = 1; j < length; ++j) {
    if (through(length, row, j) < best) {
      best = through(length, row, j);
      split = j;
    }
  }
  return split;
}

int TwoLevelSlots::split_held(int length) const {
  double best = revolve(length, levels_.slots);
  int split = 0;
  for (int j = 1; j < length; ++j) {
    if (through_held(length, j) < best) {
      best = through_held(length, j);
      split = j;
    }
  }
  return split;
}

double TwoLevelSlots::extra_seconds() const {
  return levels_.holds_input ? held_[levels_.stages]
                             : entered_.back()[levels_.stages];
}

class TwoLevelReader {
 public:
  TwoLevelReader(const TwoLevelSlots& table, int store)
      : table_(table), store_(store), emitter_(table.levels_.stages) {}

  Schedule read() {
    const int last = static_cast<int>(table_.entered_.size()) - 1;
    // A stack of our own: as many values may be in the store as there are
    // stages.
    push({table_.levels_.holds_input ? Where::kHeld : Where::kLoose, 0,
          table_.levels_.stages, last});
    while (!parts_.empty()) {
      const Part part = parts_.back();
      parts_.pop_back();
      work(part);
    }
    return emitter_.take();
  }

 private:
  // Where x_begin is at first.
  enum class Where {
    kHeld,    // on the device for good
    kLoose,   // on the device, in no slot yet
    kPlaced,  // on the device and in the store
    kAway,    // in the store
  };
  struct Part {
    Where where;
    int begin;
    int end;
    int row;
  };

  void push(const Part& part) { parts_.push_back(part); }

  void work(Part part) {
    const int length = part.end - part.begin;
    const TwoLevels& levels = table_.levels_;
    if (part.where == Where::kHeld) {
      const int split = table_.split_held(length);
      if (split == 0) {
        add_binomial(emitter_, part.begin, part.end, levels.slots);
        return;
      }
      emitter_.advance(part.begin, part.begin + split);
      push({Where::kHeld, part.begin, part.begin + split, part.row});
      push({Where::kLoose, part.begin + split, part.end, part.row});
      return;
    }
    const int slots = levels.slots - (levels.holds_input ? 1 : 0);
    if (part.where == Where::kLoose) {
      if (length == 1 ||
          table_.entered_[part.row][length] == table_.revolve(length, slots)) {
        add_binomial(emitter_, part.begin, part.end, slots);
        return;
      }
      emitter_.add_move(ActionKind::kStore, part.begin, store_);
    } else if (part.where == Where::kAway) {
      emitter_.add_move(ActionKind::kFetch, part.begin, store_);
    }
    const int split = table_.split_placed(length, part.row);
    if (split == 0) {
      emitter_.add_move(ActionKind::kFreeStored, part.begin, store_);
      add_binomial(emitter_, part.begin, part.end, slots);
      return;
    }
    emitter_.advance_dropping(part.begin, part.begin + split);
    push({Where::kAway, part.begin, part.begin + split, part.row});
    push({Where::kLoose, part.begin + split, part.end, table_.fewer(part.row)});
  }

  const TwoLevelSlots& table_;
  const int store_;
  Emitter emitter_;
  std::vector<Part> parts_;
};

Schedule TwoLevelSlots::schedule(int store) const {
  return TwoLevelReader(*this, store).read();
}

}  // namespace remat::plan
