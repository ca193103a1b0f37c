// "optimal" where not all intervals are looked at, and where sizes are rounded.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <rapidcheck/gtest.h>

#include "remat/plan/bounds.h"
#include "remat/plan/frontier.h"
#include "remat/plan/simulator.h"
#include "remat/plan/solve.h"
#include "remat/plan/solvers/first_sweep.h"
#include "remat/plan/solvers/intervals.h"
#include "tests/plan/oracles.h"

namespace remat::plan {
namespace {

// Sizes times `scale`, and up to that much more.
Chain scaled_chain(std::mt19937_64& random, int stages, int options,
                   int64_t scale) {
  Chain chain = random_chain(random, {.stages = stages, .options = options});
  const auto scaled = [&](int64_t& bytes) {
    bytes = bytes * scale + static_cast<int64_t>(random() % scale);
  };
  for (Stage& stage : chain.stages) {
    const int64_t state = stage.saved_bytes - stage.output_bytes;
    scaled(stage.output_bytes);
    stage.saved_bytes = state;
    scaled(stage.saved_bytes);
    stage.saved_bytes += stage.output_bytes;
    scaled(stage.forward_workspace_bytes);
    for (StageOption& option : stage.options) {
      scaled(option.saved_bytes);
      option.saved_bytes += stage.output_bytes;
    }
  }
  return chain;
}

Result solve_within(const Chain& chain, int64_t budget) {
  SolveOptions options;
  options.budget_bytes = budget;
  options.threads = 1;
  return solve(chain, options);
}

int64_t budget_at(const Chain& chain, int percent) {
  const int64_t least = least_budget(chain);
  return least + (keep_all_bytes(chain) - least) * percent / 100;
}

TEST(LongChains, AreAsFastAsWithAllIntervals) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 40; ++i) {
    const int options = i % 5 == 0 ? 1 : 0;
    const Chain chain = random_chain(
        random,
        {.stages = 25 + i, .temporaries = i % 2 == 0, .options = options});
    const Frontier all = frontier(chain);
    ASSERT_TRUE(all.exact);
    for (const int percent : {0, 3, 10, 30, 60, 90}) {
      const int64_t budget = budget_at(chain, percent);
      const Result plan = solve_within(chain, budget);
      ASSERT_TRUE(plan);
      ASSERT_LE(plan->peak_bytes, budget);
      ASSERT_EQ(plan->seconds, seconds_within(all, budget))
          << percent << to_json(chain);
      ASSERT_EQ(plan->optimality_gap, 0);
    }
  }
}

TEST(LongChains, TheGapSaysHowFarTheExactOptimumIsAtMost) {
  std::mt19937_64 random(9);
  int rounded = 0;
  for (int i = 0; i < 6; ++i) {
    const Chain chain = scaled_chain(random, 26 + i, 0, 500);
    const Frontier all = frontier(chain);
    ASSERT_TRUE(all.exact);
    for (const int percent : {2, 20, 50, 80}) {
      const int64_t budget = budget_at(chain, percent);
      const Result plan = solve_within(chain, budget);
      ASSERT_TRUE(plan);
      const double best = seconds_within(all, budget) - least_seconds(chain);
      ASSERT_GE(plan->extra_seconds, best * (1 - 1e-6));
      ASSERT_LE(plan->extra_seconds * (1 - plan->optimality_gap),
                best * (1 + 1e-6))
          << percent << to_json(chain);
      ASSERT_LE(plan->optimality_gap, 0.01);
      rounded += plan->optimality_gap > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(rounded, 5);
}

RC_GTEST_PROP(LongChains, FitAndAreFasterWithMore, ()) {
  std::mt19937_64 random(*rc::gen::arbitrary<uint64_t>());
  const Chain chain = scaled_chain(random, *rc::gen::inRange(25, 50), 0,
                                   *rc::gen::inRange(1000, 1000000));
  RC_ASSERT(!solve_within(chain, least_budget(chain) - 1));
  double slowest = std::numeric_limits<double>::infinity();
  for (int percent = 0; percent <= 100;
       percent = std::min(percent + *rc::gen::inRange(5, 50),
                          percent < 100 ? 100 : 101)) {
    const int64_t budget = budget_at(chain, percent);
    const Result plan = solve_within(chain, budget);
    RC_ASSERT(static_cast<bool>(plan));
    RC_ASSERT(plan->peak_bytes <= budget);
    RC_ASSERT(simulate(chain, plan->schedule, false).seconds == plan->seconds);
    // Up to what is not known of either.
    RC_ASSERT(plan->extra_seconds * (1 - plan->optimality_gap) <=
              slowest * (1 + 1e-9));
    slowest = plan->extra_seconds;
  }
  RC_ASSERT(slowest == 0);
}

TEST(LongChains, ThousandsOfStagesArePlannedInBoundedTime) {
  std::mt19937_64 random(10);
  const Chain chain = scaled_chain(random, 2500, 0, 1000003);
  for (const int percent : {5, 40}) {
    SolveOptions options;
    options.budget_bytes = keep_all_bytes(chain) / 100 * percent;
    options.max_operations = percent == 40 ? 4e9 : 3e8;
    options.max_table_bytes = 256 << 20;
    const Result plan = solve(chain, options);
    ASSERT_TRUE(plan);
    EXPECT_LE(plan->peak_bytes, options.budget_bytes);
    EXPECT_LE(plan->optimality_gap, percent == 40 ? 0.02 : 0.5);
  }
}

TEST(LongChains, MayTakeNoTimeAtAll) {
  std::mt19937_64 random(13);
  for (const int64_t scale : {1, 1000003}) {
    Chain chain = scaled_chain(random, 40, 1, scale);
    for (Stage& stage : chain.stages) {
      stage.forward_seconds = 0;
    }
    for (const int percent : {0, 50}) {
      const int64_t budget = budget_at(chain, percent);
      const Result plan = solve_within(chain, budget);
      ASSERT_TRUE(plan);
      EXPECT_LE(plan->peak_bytes, budget);
      EXPECT_LE(plan->optimality_gap, 0.01);
    }
  }
}

TEST(FirstSweep, NoPlanBeatsItsBoundOrLeavesItsReach) {
  std::mt19937_64 random(11);
  int close = 0;
  for (int i = 0; i < 300; ++i) {
    const Chain chain =
        random_chain(random, {.stages = 2 + i % 9, .temporaries = i % 2 == 0});
    const Problem problem(chain);
    const int64_t budget = budget_at(chain, 10 + i % 80);
    const Result plan = solve_within(chain, budget);
    ASSERT_TRUE(plan);
    const FirstSweep sweep(problem, budget - problem.base_bytes);
    ASSERT_LE(sweep.bound(), plan->extra_seconds + 1e-9);
    close += sweep.bound() > 0.5 * plan->extra_seconds ? 1 : 0;
    const auto reach = sweep.reach(plan->extra_seconds - sweep.bound() + 1e-9);
    for (int s = 0; s < problem.length; ++s) {
      ASSERT_GE(reach[s], std::max(s, s > 0 ? reach[s - 1] : 0));
      ASSERT_LT(reach[s], problem.length);
    }
    // What is kept when the loss is computed.
    std::vector<bool> value(problem.length + 1);
    std::vector<bool> state(problem.length + 1);
    for (const Action& action : plan->schedule.actions) {
      if (action.kind == ActionKind::kLoss) {
        break;
      }
      value[action.stage] = action.kind == ActionKind::kForwardKeep ||
                            action.kind == ActionKind::kForwardSave;
      if (action.kind == ActionKind::kForwardSave) {
        state[action.stage + 1] = true;
      }
    }
    state[problem.length] = true;
    int last = 0;
    for (int j = 1; j <= problem.length; ++j) {
      if (value[j] || state[j]) {
        ASSERT_GE(reach[last], j - 1) << to_json(chain);
        last = j;
      }
    }
  }
  EXPECT_GT(close, 60);
}

TEST(Intervals, AreTheSameWhereTheirStagesAre) {
  std::mt19937_64 random(12);
  for (int i = 0; i < 60; ++i) {
    Chain chain = random_chain(random, {.stages = 3});
    const std::vector<Stage> kinds = chain.stages;
    for (int more = 0; more < i % 20; ++more) {
      chain.stages.push_back(kinds[random() % (1 + i % 3)]);
    }
    const Problem problem(chain);
    std::vector<int> reach;
    for (int s = 0; s < problem.length; ++s) {
      const int before = s > 0 ? reach.back() : 0;
      reach.push_back(std::min<int>(std::max<int>(before, s + random() % 7),
                                    problem.length - 1));
    }
    const Intervals intervals(problem, reach);
    for (int s = 0; s <= problem.length; ++s) {
      for (int t = s; t <= problem.length; ++t) {
        const bool inside = t == problem.length || t <= reach[s];
        ASSERT_EQ(intervals.contains(s, t), inside);
        if (!inside) {
          continue;
        }
        int first = 0;
        while (
            !(intervals.contains(first, first + t - s) &&
              std::equal(problem.kind.begin() + s, problem.kind.begin() + t + 1,
                         problem.kind.begin() + first))) {
          ++first;
        }
        ASSERT_EQ(intervals.first_start(s, t), first);
        ASSERT_EQ(intervals.index(s, t, 0),
                  intervals.index(first, first + t - s, 0));
      }
    }
  }
}

}  // namespace
}  // namespace remat::plan
