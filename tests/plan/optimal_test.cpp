// "optimal" against searches that cannot be wrong, on thousands of small
// chains.
#include <gtest/gtest.h>

#include <cstdio>

#include "remat/plan/bounds.h"
#include "remat/plan/simulator.h"
#include "remat/plan/solve.h"
#include "tests/plan/oracles.h"

namespace remat::plan {
namespace {

Result solve_within(const Chain& chain, int64_t budget) {
  SolveOptions options;
  options.budget_bytes = budget;
  options.threads = 1;
  return solve(chain, options);
}

int64_t between(std::mt19937_64& random, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least,
                                                std::max(least, most))(random);
}

struct Shares {
  int compared = 0;
  int as_exhaustive = 0;
  int better_than_persistent = 0;

  void print(const char* what) const {
    std::printf(
        "%s: %d plans; %.1f%% as fast as the exhaustive optimum, %.1f%% "
        "faster than the persistent one\n",
        what, compared, 100.0 * as_exhaustive / compared,
        100.0 * better_than_persistent / compared);
  }
};

// One chain within one budget; false where nothing fits.
void compare(const Chain& chain, int64_t budget, bool persistent_too,
             Shares& shares) {
  const Result plan = solve_within(chain, budget);
  const auto exhaustive = exhaustive_seconds(chain, budget);
  if (!plan) {
    // The class is smaller than all plans, never larger.
    EXPECT_GT(plan.error().least_bytes, budget);
    EXPECT_EQ(plan.error().least_bytes, least_budget(chain));
    EXPECT_FALSE(persistent_too && persistent_seconds(chain, budget));
    return;
  }
  ++shares.compared;
  ASSERT_TRUE(exhaustive);
  const auto run = simulate(chain, plan->schedule);
  ASSERT_LE(run.peak_bytes, budget);
  ASSERT_EQ(run.peak_bytes, plan->peak_bytes);
  ASSERT_EQ(run.seconds, plan->seconds);
  ASSERT_EQ(plan->optimality_gap, 0);
  ASSERT_GE(plan->seconds, *exhaustive);
  ASSERT_LE(least_extra_seconds(chain, budget),
            *exhaustive - least_seconds(chain) + 1e-9);
  shares.as_exhaustive += plan->seconds == *exhaustive ? 1 : 0;
  if (!persistent_too) {
    return;
  }
  if (const auto persistent = persistent_seconds(chain, budget)) {
    ASSERT_LE(plan->seconds, *persistent);
    shares.better_than_persistent += plan->seconds < *persistent ? 1 : 0;
  }
}

TEST(Optimal, IsBetweenThePersistentAndTheExhaustiveOptimum) {
  std::mt19937_64 random(1);
  Shares shares;
  for (int i = 0; i < 4500 && !HasFatalFailure(); ++i) {
    const Chain chain =
        random_chain(random, {.stages = static_cast<int>(between(random, 1, 5)),
                              .temporaries = i % 2 == 0});
    const int64_t least = least_budget(chain);
    compare(chain, between(random, least - 1, keep_all_bytes(chain)),
            /*persistent_too=*/true, shares);
    if (HasFatalFailure()) {
      std::puts(to_json(chain).c_str());
    }
  }
  shares.print("chains");
  EXPECT_GT(shares.compared, 3000);
  EXPECT_GT(shares.as_exhaustive, shares.compared * 8 / 10);
}

TEST(Optimal, UsesOptionsAsAnExhaustiveSearchWould) {
  std::mt19937_64 random(2);
  Shares shares;
  for (int i = 0; i < 1000 && !HasFatalFailure(); ++i) {
    const int options = static_cast<int>(between(random, 1, 2));
    const Chain chain =
        random_chain(random, {.stages = static_cast<int>(between(random, 1, 4)),
                              .temporaries = i % 2 == 0,
                              .options = options});
    const int64_t least = least_budget(chain);
    compare(chain, between(random, least - 1, keep_all_bytes(chain)),
            /*persistent_too=*/false, shares);
    if (HasFatalFailure()) {
      std::puts(to_json(chain).c_str());
    }
  }
  shares.print("chains with options");
  EXPECT_GT(shares.as_exhaustive, shares.compared * 8 / 10);
}

TEST(Optimal, TimeFallsWithTheBudgetUntilNothingIsExtra) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 100; ++i) {
    const Chain chain =
        random_chain(random, {.stages = static_cast<int>(between(random, 1, 9)),
                              .temporaries = i % 2 == 0,
                              .options = i % 3});
    const int64_t least = least_budget(chain);
    const int64_t enough = keep_all_bytes(chain);
    double before = 1e300;
    for (int64_t budget = least; budget <= enough + 1; ++budget) {
      const Result plan = solve_within(chain, budget);
      ASSERT_TRUE(plan) << budget << to_json(chain);
      ASSERT_LE(plan->peak_bytes, budget);
      ASSERT_LE(plan->seconds, before) << budget << to_json(chain);
      before = plan->seconds;
      if (budget >= enough) {
        ASSERT_EQ(plan->extra_seconds, 0);
      }
    }
    EXPECT_FALSE(solve_within(chain, least - 1));
  }
}

}  // namespace
}  // namespace remat::plan
