#include "remat/plan/frontier.h"

#include <gtest/gtest.h>

#include "remat/plan/bounds.h"
#include "remat/plan/solve.h"
#include "tests/plan/oracles.h"

namespace remat::plan {
namespace {

TEST(Frontier, IsThatOfTheGoldenChains) {
  for (const auto& entry : golden("chains.json")) {
    const Frontier all = frontier(golden_chain(entry));
    const auto& expected = entry["frontier_keep_xbar_dp"];
    EXPECT_TRUE(all.exact);
    ASSERT_EQ(all.points.size(), expected.size()) << entry["name"];
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(all.points[i].budget_bytes, expected[i][0]) << entry["name"];
      EXPECT_EQ(all.points[i].seconds, expected[i][1]) << entry["name"];
    }
  }
}

TEST(Frontier, SaysWhatSolveFindsForEveryBudget) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 100; ++i) {
    const Chain chain =
        random_chain(random, {.stages = 1 + i % 8, .options = i % 3});
    const Frontier all = frontier(chain);
    ASSERT_TRUE(all.exact);
    for (int64_t budget = 0; budget <= keep_all_bytes(chain) + 1; ++budget) {
      SolveOptions options;
      options.budget_bytes = budget;
      const Result plan = solve(chain, options);
      ASSERT_EQ(seconds_within(all, budget),
                plan ? plan->seconds : std::numeric_limits<double>::infinity())
          << budget << to_json(chain);
    }
  }
}

TEST(Frontier, RoundedPromisesAreKept) {
  std::mt19937_64 random(6);
  Chain chain = random_chain(random, {.stages = 24});
  for (Stage& stage : chain.stages) {
    stage.output_bytes = 1000003 * (1 + stage.output_bytes) + random() % 999;
    stage.saved_bytes = 2 * stage.output_bytes + random() % 999999;
  }
  const Frontier all = frontier(chain, {.max_operations = 1e8});
  EXPECT_FALSE(all.exact);
  ASSERT_GT(all.points.size(), 10u);
  EXPECT_EQ(all.points.front().budget_bytes, least_budget(chain));
  EXPECT_EQ(all.points.back().extra_seconds, 0);
  for (size_t i = 0; i < all.points.size();
       i += std::max<size_t>(1, all.points.size() / 20)) {
    SolveOptions options;
    options.budget_bytes = all.points[i].budget_bytes;
    options.max_operations = 3e8;
    const Result plan = solve(chain, options);
    ASSERT_TRUE(plan);
    EXPECT_LE(plan->seconds, all.points[i].seconds * (1 + 1e-6));
    EXPECT_LE(i == 0 ? 0 : all.points[i].seconds,
              i == 0 ? 0 : all.points[i - 1].seconds);
  }
}

}  // namespace
}  // namespace remat::plan
