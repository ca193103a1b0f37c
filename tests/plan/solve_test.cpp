#include "remat/plan/solve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remat/plan/bounds.h"
#include "remat/plan/simulator.h"
#include "tests/plan/oracles.h"

namespace remat::plan {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::function<void(SolveOptions&)>& spoil) {
  SolveOptions options;
  spoil(options);
  return error_of([&] { solve(equal_chain(4, 1, 3), options); });
}

Result by(const std::string& solver, int64_t budget = kUnlimited) {
  SolveOptions options;
  options.solver = solver;
  options.layers = {1, 2};
  options.budget_bytes = budget;
  Chain chain = equal_chain(8, 1, 3);
  chain.stores = {{.name = "disk", .write_seconds = 2, .read_seconds = 2}};
  return solve(chain, options);
}

// Sizes with no common divisor, as measured ones have.
Chain unequal_chain(int stages) {
  std::mt19937_64 random(7);
  Chain chain = random_chain(random, {.stages = stages});
  for (Stage& stage : chain.stages) {
    stage.output_bytes = 1000003 * (1 + stage.output_bytes) + random() % 1000;
    stage.saved_bytes = 3 * stage.output_bytes + random() % 1000000;
  }
  return chain;
}

TEST(Solve, EveryMisuseIsNamed) {
  const std::vector<std::pair<std::function<void(SolveOptions&)>, std::string>>
      cases = {
          {[](SolveOptions& o) { o.solver = "optimla"; },
           "solver is 'optimla', which is unknown; did you mean optimal?"},
          {[](SolveOptions& o) { o.budget_bytes = -1; },
           "budget_bytes is -1; it must not be negative"},
          {[](SolveOptions& o) { o.gap = 2; },
           "gap is 2; it must be from 0 to 1"},
          {[](SolveOptions& o) { o.max_table_bytes = 3; },
           "max_table_bytes is 3; it must be at least 1 MiB"},
          {[](SolveOptions& o) { o.max_operations = 10; },
           "max_operations is 10; it must be at least 1e6"},
          {[](SolveOptions& o) { o.threads = -1; },
           "threads is -1; it must be at least 1, or 0 for all processors"},
          {[](SolveOptions& o) { o.solver = "every-n", o.every_n = 0; },
           "every_n is 0; it must be at least 1"},
          {[](SolveOptions& o) { o.solver = "layers", o.layers = {4}; },
           "layers names stage 4; the chain has 4, counted from 0"},
          {[](SolveOptions& o) {
             o.solver = "layers", o.layers = {1, 1};
           },
           "layers names stage 1 twice"},
          {[](SolveOptions& o) { o.solver = "segments", o.segments = 5; },
           "segments is 5; it must be from 1 to the number of stages, 4"},
          {[](SolveOptions& o) { o.solver = "binomial", o.slots = -1; },
           "slots is -1; it must be at least 1"},
      };
  for (const auto& [spoil, text] : cases) {
    EXPECT_THAT(refusal(spoil), HasSubstr("[plan] " + text));
  }
}

TEST(Solve, EverySolverFitsOrSaysWhatItNeeds) {
  for (const std::string& solver : solver_names()) {
    const Result free = by(solver);
    ASSERT_TRUE(free) << solver;
    EXPECT_EQ(free->solver, solver);
    for (int64_t budget = 0; budget < free->peak_bytes; ++budget) {
      const Result plan = by(solver, budget);
      if (plan) {
        EXPECT_LE(plan->peak_bytes, budget) << solver;
        continue;
      }
      EXPECT_GT(plan.error().least_bytes, budget) << solver;
      EXPECT_TRUE(by(solver, plan.error().least_bytes)) << solver;
    }
  }
}

TEST(Solve, FixedRulesRecomputeWhatTheySay) {
  const Chain chain = equal_chain(8, 1, 3);
  EXPECT_EQ(by("keep-all")->extra_seconds, 0);
  EXPECT_EQ(by("every-n")->extra_seconds, 4);
  EXPECT_EQ(by("layers")->extra_seconds, 2);
  EXPECT_EQ(by("recompute-all")->extra_seconds, 28);
  EXPECT_EQ(simulate(chain, by("layers")->schedule).recomputed,
            (std::vector<int>{0, 1, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(by("optimal")->peak_bytes, keep_all_bytes(chain));
}

TEST(Solve, RoundedSizesGiveAPlanNearTheBound) {
  const Chain chain = unequal_chain(40);
  const int64_t all = keep_all_bytes(chain);
  for (const int percent : {20, 40, 70}) {
    SolveOptions options;
    options.budget_bytes = all / 100 * percent;
    options.threads = 1;
    const Result one = solve(chain, options);
    ASSERT_TRUE(one);
    EXPECT_LE(one->peak_bytes, options.budget_bytes);
    EXPECT_LE(one->optimality_gap, 0.01);
    EXPECT_EQ(one->coarsened, "");
    options.threads = 3;
    EXPECT_EQ(solve(chain, options)->schedule, one->schedule);
  }
}

TEST(Solve, LeastBudgetHasAPlanAndOneByteLessHasNone) {
  for (const int stages : {1, 7, 30}) {
    const Chain chain = unequal_chain(stages);
    SolveOptions options;
    options.max_operations = 1e8;
    options.budget_bytes = least_budget(chain);
    const Result plan = solve(chain, options);
    ASSERT_TRUE(plan);
    EXPECT_LE(plan->peak_bytes, options.budget_bytes);
    --options.budget_bytes;
    const Result none = solve(chain, options);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().least_bytes, options.budget_bytes + 1);
    EXPECT_THAT(none.error().reason, HasSubstr("no plan needs less than"));
  }
}

TEST(Solve, WhatIsTooLongIsJoinedAndSaysSo) {
  const Chain chain = unequal_chain(200);
  SolveOptions options;
  options.budget_bytes = keep_all_bytes(chain) / 3;
  options.max_operations = 1e6;
  const Result plan = solve(chain, options);
  ASSERT_TRUE(plan);
  EXPECT_LE(plan->peak_bytes, options.budget_bytes);
  EXPECT_THAT(plan->coarsened, HasSubstr("200 stages were joined to "));
  EXPECT_EQ(plan->schedule.stages, 200);
  // Even so it is better than the best of the rules.
  options.solver = "segments";
  const Result segments = solve(chain, options);
  EXPECT_LT(plan->seconds, segments ? segments->seconds : 1e300);
}

}  // namespace
}  // namespace remat::plan
