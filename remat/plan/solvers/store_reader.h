// The schedule that the tables of a StoreProblem stand for.
//
// For the sources of these tables only.
#pragma once

#include "remat/plan/solvers/emit.h"
#include "remat/plan/solvers/store_problem.h"

namespace remat::plan {

inline Part whole_part(const StoreProblem& problem, int64_t memory,
                       int64_t store) {
  return {.s = 0,
          .t = problem.problem().length,
          .variant = 0,
          .away = problem.moves_input(),
          .memory = memory,
          .store = store};
}

// Table: pick(part) among the choices, and whether it stays(part) on the
// device where it could be away.
template <class Table>
class StoreReader {
 public:
  StoreReader(const Table& table, int store)
      : table_(table),
        problem_(table.problem_),
        chain_(problem_.problem()),
        store_(store),
        emitter_(chain_.length) {}

  Schedule read(const Part& whole) {
    if (whole.away) {
      emitter_.add_move(ActionKind::kStore, 0, store_);
    }
    run(whole);
    return emitter_.take();
  }

 private:
  void run(Part part) {
    for (;;) {
      if (part.away && table_.stays(part)) {
        emitter_.add_move(ActionKind::kFreeStored, part.s, store_);
        part.away = false;
        part.memory -= table_.grid_.memory(chain_.value[part.s]);
      }
      if (part.s == part.t) {
        return alone(part);
      }
      const Choice choice = table_.pick(part);
      advance(part, choice);
      run(choice.right);
      if (part.away) {
        emitter_.add_move(ActionKind::kFetch, part.s, store_);
      }
      part = choice.left;
    }
  }

  void advance(const Part& part, const Choice& choice) {
    const int j = choice.boundary;
    if (choice.keep == nullptr) {
      part.away ? emitter_.advance_dropping(part.s, j)
                : emitter_.advance(part.s, j);
      if (choice.stored) {
        emitter_.add_move(ActionKind::kStore, j, store_);
      }
    } else if (part.away) {
      emitter_.advance_dropping(part.s, j - 1);
      emitter_.add(ActionKind::kForwardSave, j - 1, choice.keep->way);
      emitter_.add(ActionKind::kFree, j - 1);
    } else {
      emitter_.advance_saving(part.s, j, *choice.keep);
    }
  }

  void alone(const Part& part) {
    const Keep* way = nullptr;
    if (part.variant == 0 && part.s < chain_.length) {
      for (const Keep& keep : chain_.keeps[part.s + 1]) {
        const auto& kept = problem_.kept(part.s + 1, keep);
        if (kept.usable && table_.grid_.stored(kept.amount) <= part.store &&
            table_.grid_.least(alone_bytes(chain_, part.s, keep)) <=
                part.memory &&
            (way == nullptr || keep.extra_seconds < way->extra_seconds)) {
          way = &keep;
        }
      }
    }
    emitter_.alone(chain_, part.s, way);
  }

  const Table& table_;
  const StoreProblem& problem_;
  const Problem& chain_;
  const int store_;
  Emitter emitter_;
};

}  // namespace remat::plan
