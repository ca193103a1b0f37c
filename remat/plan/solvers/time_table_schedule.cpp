#include <limits>

#include "remat/base/error.h"
#include "remat/plan/solvers/emit.h"
#include "remat/plan/solvers/time_table.h"

namespace remat::plan {
namespace {

constexpr float kEpsilon = std::numeric_limits<float>::epsilon();

}  // namespace

// Follows the table from the whole chain down. Choices are not stored, which
// would double the table: looking at the candidates of one entry again is
// cheap.
class TableReader {
 public:
  explicit TableReader(const TimeTable& table)
      : table_(table), problem_(table.problem_), emitter_(problem_.length) {}

  Schedule read(int units) {
    interval(0, problem_.length, 0, units);
    return emitter_.take();
  }

 private:
  struct Choice {
    int boundary = 0;
    // Null: x_boundary itself is kept.
    const Keep* keep = nullptr;
    int right_units = 0;
    int left_units = 0;
    float cost = std::numeric_limits<float>::infinity();
  };

  void interval(int s, int t, int variant, int units) {
    while (t > s) {
      const Choice choice = best(s, t, variant, units);
      if (choice.boundary == 0) {
        fail("plan", "internal error: no entry for stages ", s, " to ", t,
             " with ", units, " units");
      }
      const int j = choice.boundary;
      if (choice.keep != nullptr) {
        emitter_.advance_saving(s, j, *choice.keep);
      } else {
        emitter_.advance(s, j);
      }
      interval(j, t, variant, units - choice.right_units);
      t = j - 1;
      variant = choice.keep != nullptr ? choice.keep->variant : 0;
      units -= choice.left_units;
    }
    emitter_.alone(problem_, s, variant > 0 ? nullptr : way_alone(s, units));
  }

  Choice best(int s, int t, int variant, int units) const {
    const int64_t gradient = problem_.value[t + 1];
    // Sums in another order may differ by this.
    const float wanted =
        table_.row(s, t, variant).at(units) * (1 + 4 * kEpsilon);
    Choice best;
    ForwardSteps steps(problem_, s);
    const auto consider = [&](double seconds, int64_t bytes, int left_variant,
                              const Choice& choice) {
      if (table_.units_for(bytes) > units) {
        return;
      }
      const int j = choice.boundary;
      const float cost =
          table_.row(j, t, variant).at(units - choice.right_units) +
          table_.row(s, j - 1, left_variant).at(units - choice.left_units) +
          static_cast<float>(seconds * table_.scale_);
      if (cost < best.cost) {
        best = choice;
        best.cost = cost;
      }
    };
    const int most = table_.last_boundary(s, t);
    for (int j = s + 1; j <= most && best.cost > wanted; ++j) {
      const std::vector<Keep>& keeps = problem_.keeps[j];
      const double saved_from = problem_.prefix[j - 1] - problem_.prefix[s];
      for (size_t k = 0; k < keeps.size(); ++k) {
        consider(saved_from + keeps[k].extra_seconds,
                 gradient + steps.saving(j, keeps[k]), keeps[k].variant,
                 {.boundary = j,
                  .keep = &keeps[k],
                  .right_units = table_.right_units(j, k, t),
                  .left_units = table_.left_units_[j][k]});
      }
      consider(problem_.prefix[j] - problem_.prefix[s],
               gradient + steps.advance(j), 0,
               {.boundary = j, .right_units = table_.value_units(j, t)});
    }
    return best;
  }

  const Keep* way_alone(int s, int units) const {
    const Keep* way = nullptr;
    if (s == problem_.length) {
      return way;
    }
    for (const Keep& keep : problem_.keeps[s + 1]) {
      if (table_.units_for(alone_bytes(problem_, s, keep)) <= units &&
          (way == nullptr || keep.extra_seconds < way->extra_seconds)) {
        way = &keep;
      }
    }
    if (way == nullptr) {
      fail("plan", "internal error: no way to run stage ", s, " with ", units,
           " units");
    }
    return way;
  }

  const TimeTable& table_;
  const Problem& problem_;
  Emitter emitter_;
};

Schedule TimeTable::schedule(int units) const {
  return TableReader(*this).read(units);
}

}  // namespace remat::plan
