#include "remat/plan/region_plan.h"

#include <string>
#include <utility>

#include "remat/base/error.h"

namespace remat::plan {
namespace {

// A recursive descent over the actions: the forward sweep of an interval is a
// list of steps, and its backward takes them from the last on, where each
// region is the sweep of a shorter interval.
class Reader {
 public:
  explicit Reader(const Schedule& schedule) : schedule_(schedule) {}

  RegionPlan read() {
    RegionPlan plan{.stages = schedule_.stages, .steps = {}};
    plan.steps = sweep(0, schedule_.stages);
    take(ActionKind::kLoss, 0);
    backward(plan.steps);
    skip_releases();
    if (next() != nullptr) {
      refuse("nothing was to follow");
    }
    return plan;
  }

 private:
  const Action* next() const {
    return position_ < schedule_.actions.size() ? &schedule_.actions[position_]
                                                : nullptr;
  }

  bool next_is(ActionKind kind, int stage) const {
    const Action* const action = next();
    return action != nullptr && action->kind == kind && action->stage == stage;
  }

  [[noreturn]] void refuse(const std::string& expected) const {
    const Action* const action = next();
    fail_usage("plan", "the schedule is none of nested regions: action ",
               position_, " is ",
               action == nullptr
                   ? std::string("missing")
                   : str(name_of(action->kind), " of stage ", action->stage),
               "; ", expected);
  }

  void take(ActionKind kind, int stage) {
    skip_releases();
    if (!next_is(kind, stage)) {
      refuse(str(name_of(kind), " of stage ", stage, " was to follow"));
    }
    ++position_;
  }

  // What is kept follows from the steps.
  void skip_releases() {
    while (next() != nullptr && (next()->kind == ActionKind::kFree ||
                                 next()->kind == ActionKind::kFreeSaved ||
                                 next()->kind == ActionKind::kFreeStored)) {
      ++position_;
    }
  }

  // From x_begin, which is there, until x_end is.
  std::vector<RegionStep> sweep(int begin, int end) {
    std::vector<RegionStep> steps;
    // Stages [from, at) have run without saving, from x_from.
    int from = begin;
    const auto close_region = [&](int at) {
      if (from < at) {
        steps.push_back(
            {.kind = RegionStep::Kind::kRegion, .begin = from, .end = at});
      }
      from = at;
    };
    for (int at = begin; at < end;) {
      skip_releases();
      if (next_is(ActionKind::kStore, at)) {
        // x_at stays, elsewhere.
        close_region(at);
        ++position_;
      } else if (next_is(ActionKind::kForwardKeep, at)) {
        close_region(at);
        ++position_;
        ++at;
      } else if (next_is(ActionKind::kForwardDrop, at)) {
        ++position_;
        ++at;
      } else if (next_is(ActionKind::kForwardSave, at)) {
        const int way = next()->way;
        ++position_;
        if (from < at && next_is(ActionKind::kFree, at)) {
          steps.push_back({.kind = RegionStep::Kind::kRegionThenSave,
                           .begin = from,
                           .end = at + 1,
                           .way = way});
        } else {
          close_region(at);
          steps.push_back({.kind = RegionStep::Kind::kSave,
                           .begin = at,
                           .end = at + 1,
                           .way = way});
        }
        from = ++at;
      } else {
        refuse(str("a forward of stage ", at, " was to follow"));
      }
    }
    close_region(end);
    return steps;
  }

  void backward(std::vector<RegionStep>& steps) {
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      skip_releases();
      // What comes back from a store has waited there.
      if (next_is(ActionKind::kFetch, step->begin)) {
        step->store = next()->store;
        ++position_;
      }
      switch (step->kind) {
        case RegionStep::Kind::kSave:
          take(ActionKind::kBackward, step->begin);
          break;
        case RegionStep::Kind::kRegion:
          step->inside = sweep(step->begin, step->end);
          backward(step->inside);
          break;
        case RegionStep::Kind::kRegionThenSave:
          step->inside = sweep(step->begin, step->end - 1);
          take(ActionKind::kBackward, step->end - 1);
          backward(step->inside);
          break;
      }
    }
  }

  const Schedule& schedule_;
  size_t position_ = 0;
};

void count_forwards(const std::vector<RegionStep>& steps,
                    std::vector<int>& counts) {
  for (const RegionStep& step : steps) {
    for (int stage = step.begin; stage < step.end; ++stage) {
      ++counts[static_cast<size_t>(stage)];
    }
    count_forwards(step.inside, counts);
  }
}

}  // namespace

RegionPlan region_plan(const Schedule& schedule) {
  return Reader(schedule).read();
}

std::vector<int> forwards_of(const RegionPlan& plan) {
  std::vector<int> counts(static_cast<size_t>(plan.stages), 0);
  count_forwards(plan.steps, counts);
  return counts;
}

}  // namespace remat::plan
