// Values on the device and in a store: H-Revolve's costs, and what is beyond.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remat/plan/bounds.h"
#include "remat/plan/simulator.h"
#include "remat/plan/solve.h"
#include "remat/plan/solvers/rules.h"
#include "tests/plan/oracles.h"

namespace remat::plan {
namespace {

using ::testing::HasSubstr;

// A row of multilevel.json: every value a byte, and a saved state no more than
// its output.
Chain golden_levels(const nlohmann::json& row) {
  Chain chain = equal_chain(row["n"], 1, 1);
  chain.holds_input = false;
  for (Stage& stage : chain.stages) {
    stage.forward_seconds = row["uf"];
    stage.backward_seconds = row["ub"];
  }
  chain.stores = {{.name = "disk",
                   .capacity_values = row.value("disk", kUnlimited),
                   .write_seconds = row["wd"],
                   .read_seconds = row["rd"]}};
  return chain;
}

nlohmann::json rows(const std::string& name) {
  const nlohmann::json all = golden("multilevel.json")[name];
  EXPECT_GE(all.size(), 14u);
  return all;
}

Plan solve_slots(const Chain& chain, int slots) {
  SolveOptions options;
  options.solver = "two-level";
  options.slots = slots;
  const Result plan = solve(chain, options);
  EXPECT_TRUE(plan);
  return *plan;
}

// What runs is what the table promised, in no more slots than there are.
void expect_cost(const nlohmann::json& row, double extra) {
  const Chain chain = golden_levels(row);
  const int slots = row["ram"];
  const Plan plan = solve_slots(chain, slots);
  EXPECT_EQ(plan.extra_seconds, extra) << row;
  const auto run = simulate(chain, plan.schedule, false);
  EXPECT_EQ(run.recompute_seconds + run.transfer_seconds, extra) << row;
  EXPECT_EQ(run.seconds, least_seconds(chain) + extra) << row;
  EXPECT_LE(run.stores[0].peak_values, row.value("disk", kUnlimited)) << row;
  // Beside the slots: the value that moves forward, a saved state and two
  // gradients.
  EXPECT_LE(run.peak_bytes, std::min(slots, chain.length()) + 4) << row;
}

TEST(GoldenTwoLevels, WithBoundedStores) {
  for (const auto& row : rows("hrevolve")) {
    expect_cost(row, row["own_dp_advances_plus_io"]);
    EXPECT_EQ(solve_slots(golden_levels(row), row["ram"]).seconds,
              row["full_time"]);
  }
}

TEST(GoldenTwoLevels, WhereTheBackwardTimeMisleadsOthers) {
  int worse = 0;
  for (const auto& row : rows("hrevolve_ub_sensitivity")) {
    expect_cost(row, row["own_dp"]);
    worse += row["advances_plus_io"] > row["own_dp"] ? 1 : 0;
  }
  EXPECT_GE(worse, 8);
}

TEST(GoldenTwoLevels, WithAnUnlimitedStore) {
  for (const auto& row : rows("disk")) {
    expect_cost(row, row["own_hrevolve_unlimited_disk"]);
    EXPECT_LE(row["own_hrevolve_unlimited_disk"], row["advances_plus_io"]);
  }
}

Result solve_within(const Chain& chain, const std::string& solver,
                    int64_t budget) {
  SolveOptions options;
  options.solver = solver;
  options.budget_bytes = budget;
  options.threads = 1;
  return solve(chain, options);
}

struct Shares {
  int compared = 0;
  int as_exhaustive = 0;
  int moved = 0;

  void print(const char* what) const {
    std::printf(
        "%s: %d plans, %d as fast as the exhaustive optimum, %d use "
        "the store\n",
        what, compared, as_exhaustive, moved);
  }
};

// A solver within one budget, against the search that may do anything.
void compare(const Chain& chain, const std::string& solver, int64_t budget,
             Shares& shares) {
  const bool moves = solver == "two-level";
  const Result plan = solve_within(chain, solver, budget);
  const auto exhaustive = exhaustive_seconds(chain, budget, moves);
  if (!plan) {
    const int64_t least = plan.error().least_bytes;
    EXPECT_GT(least, budget);
    EXPECT_TRUE(solve_within(chain, solver, least)) << to_json(chain);
    EXPECT_FALSE(solve_within(chain, solver, least - 1)) << to_json(chain);
    return;
  }
  ASSERT_TRUE(exhaustive) << budget << to_json(chain);
  ++shares.compared;
  const auto run = simulate(chain, plan->schedule);
  ASSERT_LE(run.peak_bytes, budget);
  ASSERT_EQ(run.seconds, plan->seconds);
  ASSERT_GE(plan->seconds, *exhaustive) << budget << to_json(chain);
  shares.as_exhaustive += plan->seconds == *exhaustive ? 1 : 0;
  shares.moved += run.stores[0].writes > 0 ? 1 : 0;
}

int64_t between(std::mt19937_64& random, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least,
                                                std::max(least, most))(random);
}

TEST(TwoLevel, MovesValuesAsAnExhaustiveSearchWould) {
  std::mt19937_64 random(11);
  Shares shares;
  for (int i = 0; i < 600 && !HasFatalFailure(); ++i) {
    const int most = i % 4 == 0 ? 4 : 3;  // the search takes 4^stages states
    Chain chain = random_chain(
        random, {.stages = static_cast<int>(between(random, 1, most)),
                 .temporaries = i % 2 == 0,
                 .options = i % 3 == 0 ? 1 : 0,
                 .stores = 1});
    chain.holds_input = i % 5 < 2;
    const int64_t least =
        std::max<int64_t>(0, least_budget(chain) - (i % 4 == 0 ? 9 : 2));
    compare(chain, "two-level", between(random, least, keep_all_bytes(chain)),
            shares);
  }
  shares.print("two-level");
  EXPECT_GT(shares.compared, 300);
  EXPECT_GT(shares.as_exhaustive, shares.compared * 8 / 10);
  EXPECT_GT(shares.moved, 100);
}

TEST(TwoLevel, BytesAreNeverSlowerThanSlotsInTheSameMemory) {
  int faster = 0;
  for (const auto& row : rows("hrevolve")) {
    if (row["n"] > 50) {
      continue;
    }
    Chain chain = golden_levels(row);
    for (const bool held : {false, true}) {
      chain.holds_input = held;
      const Plan slots = solve_slots(chain, row["ram"]);
      const Result bytes = solve_within(chain, "two-level", slots.peak_bytes);
      ASSERT_TRUE(bytes) << row;
      EXPECT_LE(bytes->seconds, slots.seconds) << row;
      faster += bytes->seconds < slots.seconds ? 1 : 0;
    }
  }
  EXPECT_GT(faster, 0);
}

TEST(TwoLevel, UnequalStagesInARoundedTable) {
  std::mt19937_64 random(13);
  Chain chain = random_chain(random, {.stages = 30});
  for (Stage& stage : chain.stages) {
    stage.output_bytes = 1000003 * (1 + stage.output_bytes) + random() % 1000;
    stage.saved_bytes = 3 * stage.output_bytes + random() % 1000000;
  }
  chain.stores = {{.name = "disk",
                   .capacity_bytes = 20000000,
                   .write_bytes_per_second = 1e7,
                   .read_bytes_per_second = 1e7}};
  SolveOptions options;
  options.max_operations = 2e8;
  options.budget_bytes = keep_all_bytes(chain) / 4;
  const Result alone = solve(chain, options);
  options.solver = "two-level";
  const Result both = solve(chain, options);
  ASSERT_TRUE(alone && both);
  EXPECT_LE(both->peak_bytes, options.budget_bytes);
  EXPECT_LT(both->seconds, alone->seconds);
  const auto run = simulate(chain, both->schedule);
  EXPECT_GT(run.transfer_seconds, 0);
  EXPECT_LE(run.stores[0].peak_bytes, 20000000);
}

TEST(TwoLevel, LongChainsTakeSlots) {
  Chain chain = equal_chain(2500, 7, 20);
  chain.stores = {{.name = "disk",
                   .capacity_values = 10,
                   .write_seconds = 3,
                   .read_seconds = 3}};
  const int64_t budget = 400;
  const Result alone = solve_within(chain, "binomial", budget);
  const Result both = solve_within(chain, "two-level", budget);
  ASSERT_TRUE(alone && both);
  EXPECT_LE(both->peak_bytes, budget);
  EXPECT_LT(both->seconds, alone->seconds);
  const Result none = solve_within(chain, "two-level", 10);
  ASSERT_FALSE(none);
  EXPECT_TRUE(solve_within(chain, "two-level", none.error().least_bytes));
}

TEST(TwoLevel, OptimalKeepsToWhatTheStoreHolds) {
  std::mt19937_64 random(12);
  Shares shares;
  for (int i = 0; i < 1500 && !HasFatalFailure(); ++i) {
    const int stores = 1 + i % 2;
    const Chain chain =
        random_chain(random, {.stages = static_cast<int>(between(random, 1, 4)),
                              .temporaries = i % 4 < 2,
                              .options = 1 + i % 2,
                              .stores = stores});
    const int64_t budget =
        between(random, least_budget(chain), keep_all_bytes(chain));
    if (stores == 1) {
      compare(chain, "optimal", budget, shares);
      continue;
    }
    // With several stores the plan is right, not always the best.
    const Result plan = solve_within(chain, "optimal", budget);
    ASSERT_TRUE(plan);
    ASSERT_LE(simulate(chain, plan->schedule).peak_bytes, budget);
    ASSERT_GE(plan->seconds, *exhaustive_seconds(chain, budget));
  }
  shares.print("optimal within a store");
  EXPECT_GT(shares.as_exhaustive, shares.compared * 8 / 10);
  EXPECT_GT(shares.moved, 100);
}

}  // namespace
}  // namespace remat::plan
