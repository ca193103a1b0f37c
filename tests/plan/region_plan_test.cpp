// Schedules as nested regions, and back.
#include "remat/plan/region_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "remat/plan/bounds.h"
#include "remat/plan/simulator.h"
#include "remat/plan/solve.h"
#include "tests/plan/oracles.h"

namespace remat::plan {
namespace {

// What executing the steps does, as actions.
class Actions {
 public:
  explicit Actions(const RegionPlan& plan) {
    schedule_.stages = plan.stages;
    sweep(plan.steps);
    add(ActionKind::kLoss, 0);
    backward(plan.steps);
  }

  const Schedule& schedule() const { return schedule_; }

 private:
  void add(ActionKind kind, int stage, int way = 0) {
    schedule_.actions.push_back({kind, stage, static_cast<int16_t>(way), 0});
  }

  void advance(int begin, int end) {
    for (int i = begin; i < end; ++i) {
      add(i == begin ? ActionKind::kForwardKeep : ActionKind::kForwardDrop, i);
    }
  }

  void sweep(const std::vector<RegionStep>& steps) {
    for (const RegionStep& step : steps) {
      switch (step.kind) {
        case RegionStep::Kind::kSave:
          add(ActionKind::kForwardSave, step.begin, step.way);
          break;
        case RegionStep::Kind::kRegion:
          advance(step.begin, step.end);
          break;
        case RegionStep::Kind::kRegionThenSave:
          advance(step.begin, step.end - 1);
          add(ActionKind::kForwardSave, step.end - 1, step.way);
          add(ActionKind::kFree, step.end - 1);
          break;
      }
    }
  }

  void backward(const std::vector<RegionStep>& steps) {
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      if (step->kind != RegionStep::Kind::kSave) {
        sweep(step->inside);
      }
      if (step->kind != RegionStep::Kind::kRegion) {
        add(ActionKind::kBackward, step->end - 1);
      }
      backward(step->inside);
    }
  }

  Schedule schedule_;
};

std::vector<int> forwards_in(const Schedule& schedule) {
  std::vector<int> counts(static_cast<size_t>(schedule.stages), 0);
  for (const Action& action : schedule.actions) {
    if (action.kind == ActionKind::kForwardSave ||
        action.kind == ActionKind::kForwardKeep ||
        action.kind == ActionKind::kForwardDrop) {
      ++counts[static_cast<size_t>(action.stage)];
    }
  }
  return counts;
}

bool has_stored(const std::vector<RegionStep>& steps) {
  return std::any_of(steps.begin(), steps.end(), [](const RegionStep& step) {
    return step.store >= 0 || has_stored(step.inside);
  });
}

TEST(RegionPlan, EverySolversPlansAreNestedRegions) {
  std::mt19937_64 random(11);
  int plans = 0, unpinned = 0, stored = 0;
  for (int round = 0; round < 400; ++round) {
    Chain chain = random_chain(
        random, {.stages = 2 + round % 9, .temporaries = round % 2 == 0});
    for (const std::string& solver : solver_names()) {
      chain.stores.clear();
      if (solver == "two-level") {
        chain.stores = {{.name = "disk", .capacity_bytes = 8}};
      }
      for (const int64_t more : {0, 3, 8, 100}) {
        SolveOptions options;
        options.solver = solver;
        options.threads = 1;
        options.budget_bytes = least_budget(chain) + more;
        options.layers = {0, chain.length() - 1};
        const Result plan = solve(chain, options);
        if (!plan) {
          continue;
        }
        ++plans;
        const RegionPlan regions = region_plan(plan->schedule);
        EXPECT_EQ(forwards_of(regions), forwards_in(plan->schedule));
        if (!chain.stores.empty()) {
          stored += has_stored(regions.steps);
          continue;
        }
        const Schedule again = Actions(regions).schedule();
        const auto run = simulate(chain, again);
        EXPECT_EQ(run.seconds, plan->seconds)
            << solver << ": " << to_text(plan->schedule) << "\n"
            << to_text(again);
        EXPECT_LE(run.peak_bytes, options.budget_bytes)
            << solver << ": " << to_text(plan->schedule) << "\n"
            << to_text(again);
        EXPECT_EQ(region_plan(again), regions);
        for (const RegionStep& step : regions.steps) {
          unpinned += step.kind == RegionStep::Kind::kRegionThenSave;
        }
      }
    }
  }
  EXPECT_GT(plans, 2000);
  EXPECT_GT(unpinned, 100);
  EXPECT_GT(stored, 50);
}

Schedule of(int stages, const std::vector<Action>& actions) {
  return {stages, actions};
}

TEST(RegionPlan, StoredInputsAreSeen) {
  const RegionPlan plan =
      region_plan(of(2, {{ActionKind::kForwardSave, 0, 0, 0},
                         {ActionKind::kStore, 1, 0, 3},
                         {ActionKind::kForwardKeep, 1, 0, 0},
                         {ActionKind::kFree, 1, 0, 0},
                         {ActionKind::kLoss, 0, 0, 0},
                         {ActionKind::kFetch, 1, 0, 3},
                         {ActionKind::kForwardSave, 1, 0, 0},
                         {ActionKind::kBackward, 1, 0, 0},
                         {ActionKind::kFreeStored, 1, 0, 3},
                         {ActionKind::kBackward, 0, 0, 0}}));
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_EQ(plan.steps[1].kind, RegionStep::Kind::kRegion);
  EXPECT_EQ(plan.steps[1].store, 3);
  EXPECT_EQ(plan.steps[0].store, -1);
}

TEST(RegionPlan, OtherSchedulesAreRefused) {
  EXPECT_EQ(error_of([] {
              region_plan(of(1, {{ActionKind::kForwardKeep, 0, 0, 0},
                                 {ActionKind::kLoss, 0, 0, 0},
                                 {ActionKind::kBackward, 0, 0, 0}}));
            }),
            "[plan] the schedule is none of nested regions: action 2 is "
            "backward of stage 0; a forward of stage 0 was to follow");
  EXPECT_EQ(error_of([] {
              region_plan(of(1, {{ActionKind::kForwardSave, 0, 0, 0},
                                 {ActionKind::kLoss, 0, 0, 0}}));
            }),
            "[plan] the schedule is none of nested regions: action 2 is "
            "missing; backward of stage 0 was to follow");
}

}  // namespace
}  // namespace remat::plan
