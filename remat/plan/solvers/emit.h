// The actions of the recurrences' building blocks.
#pragma once

#include "remat/plan/schedule.h"
#include "remat/plan/solvers/problem.h"

namespace remat::plan {

class Emitter {
 public:
  explicit Emitter(int stages) { schedule_.stages = stages; }

  void add(ActionKind kind, int stage, int way = 0) {
    schedule_.actions.push_back(
        {kind, static_cast<int32_t>(stage), static_cast<int16_t>(way), 0});
  }

  void add_move(ActionKind kind, int value, int store) {
    schedule_.actions.push_back(
        {kind, static_cast<int32_t>(value), 0, static_cast<int16_t>(store)});
  }

  // Forwards from x_s, which stays, to x_j; nothing between stays.
  void advance(int s, int j) {
    for (int i = s; i < j; ++i) {
      add(i == s ? ActionKind::kForwardKeep : ActionKind::kForwardDrop, i);
    }
  }

  // The same, but x_s goes.
  void advance_dropping(int s, int j) {
    for (int i = s; i < j; ++i) {
      add(ActionKind::kForwardDrop, i);
    }
  }

  // As advance(), and the saved state of stage j - 1 stays instead of its
  // input.
  void advance_saving(int s, int j, const Keep& keep) {
    advance(s, j - 1);
    add(ActionKind::kForwardSave, j - 1, keep.way);
    if (j - 1 > s) {
      add(ActionKind::kFree, j - 1);
    }
  }

  // Forward and backward of stage s, or the loss.
  void alone(const Problem& problem, int s, const Keep* keep) {
    if (s == problem.length) {
      add(ActionKind::kLoss, 0);
      return;
    }
    if (keep != nullptr) {
      add(ActionKind::kForwardSave, s, keep->way);
      if (!keep->holds_output) {
        add(ActionKind::kFree, s + 1);
      }
    }
    add(ActionKind::kBackward, s);
  }

  int stages() const { return schedule_.stages; }

  Schedule take() { return std::move(schedule_); }

 private:
  Schedule schedule_;
};

}  // namespace remat::plan
