// The golden numbers of tests/golden/planner, most of them from a study of
// other planners: rotor, checkpoint_schedules, exhaustive searches.
#include <gtest/gtest.h>

#include <sstream>

#include "remat/plan/bounds.h"
#include "remat/plan/simulator.h"
#include "remat/plan/solve.h"
#include "remat/plan/solvers/rules.h"
#include "tests/plan/oracles.h"

namespace remat::plan {
namespace {

Result solve_within(const Chain& chain, int64_t budget) {
  SolveOptions options;
  options.budget_bytes = budget;
  return solve(chain, options);
}

// "Fa0 Fc1 Fn2 L B1", as to_text() has it.
Schedule schedule_of_text(int stages, const std::string& text) {
  const std::map<std::string, ActionKind> kinds = {
      {"Fa", ActionKind::kForwardSave},
      {"Fc", ActionKind::kForwardKeep},
      {"Fn", ActionKind::kForwardDrop},
      {"L", ActionKind::kLoss},
      {"B", ActionKind::kBackward}};
  Schedule schedule{.stages = stages, .actions = {}};
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t digits =
        std::min(word.find_first_of("0123456789"), word.size());
    const int stage = digits < word.size() ? std::stoi(word.substr(digits)) : 0;
    schedule.actions.push_back({kinds.at(word.substr(0, digits)), stage});
  }
  return schedule;
}

TEST(GoldenChains, NothingRecomputed) {
  for (const auto& entry : golden("chains.json")) {
    const Chain chain = golden_chain(entry);
    EXPECT_EQ(keep_all_bytes(chain), entry["no_recompute"]["peak"]);
    EXPECT_EQ(least_seconds(chain), entry["no_recompute"]["time"]);
  }
}

TEST(GoldenChains, SchedulesOfOthersCostWhatTheirAuthorsSay) {
  int schedules = 0;
  for (const auto& entry : golden("chains.json")) {
    const Chain chain = golden_chain(entry);
    for (const auto& limit : entry["limits"]) {
      if (!limit.contains("schedule") || limit["schedule"].is_null()) {
        continue;
      }
      const std::string text = limit["schedule"];
      const Schedule schedule = schedule_of_text(chain.length(), text);
      EXPECT_EQ(to_text(schedule), text);
      const auto run = simulate(chain, schedule);
      EXPECT_EQ(run.peak_bytes, limit["schedule_peak"]) << entry["name"];
      EXPECT_EQ(run.seconds, limit["optimal_persistent"]) << entry["name"];
      ++schedules;
    }
  }
  EXPECT_GE(schedules, 30);
}

TEST(GoldenChains, OptimalForEachLimit) {
  for (const auto& entry : golden("chains.json")) {
    const Chain chain = golden_chain(entry);
    for (const auto& limit : entry["limits"]) {
      const int64_t bytes = limit["M"];
      const std::string where = str(entry["name"], " at ", bytes);
      const auto persistent = persistent_seconds(chain, bytes);
      const Result plan = solve_within(chain, bytes);
      if (limit["keep_xbar_dp"].is_null()) {
        EXPECT_FALSE(persistent) << where;
        EXPECT_FALSE(plan) << where;
        continue;
      }
      ASSERT_TRUE(persistent && plan) << where;
      EXPECT_EQ(*persistent, limit["optimal_persistent"]) << where;
      EXPECT_EQ(plan->seconds, limit["keep_xbar_dp"]) << where;
      EXPECT_EQ(plan->optimality_gap, 0) << where;
      EXPECT_LE(plan->peak_bytes, bytes) << where;
      EXPECT_GE(plan->seconds, limit["unrestricted"]) << where;
    }
  }
}

TEST(GoldenChains, OptimalForEveryBudget) {
  for (const auto& entry : golden("chains.json")) {
    const Chain chain = golden_chain(entry);
    const auto& frontier = entry["frontier_keep_xbar_dp"];
    ASSERT_FALSE(frontier.empty());
    for (size_t i = 0; i < frontier.size(); ++i) {
      const int64_t from = frontier[i][0];
      const int64_t to = i + 1 < frontier.size()
                             ? frontier[i + 1][0].get<int64_t>() - 1
                             : from + 5;
      for (const int64_t bytes : {from, to}) {
        const Result plan = solve_within(chain, bytes);
        ASSERT_TRUE(plan) << entry["name"] << " at " << bytes;
        EXPECT_EQ(plan->seconds, frontier[i][1])
            << entry["name"] << " at " << bytes;
      }
    }
  }
}

TEST(GoldenChains, LeastBudget) {
  for (const auto& entry : golden("chains.json")) {
    const Chain chain = golden_chain(entry);
    const int64_t least = entry["frontier_keep_xbar_dp"][0][0];
    EXPECT_EQ(least_budget(chain), least) << entry["name"];
    if (entry["min_feasible_unrestricted"].is_number()) {
      EXPECT_EQ(least, entry["min_feasible_unrestricted"]) << entry["name"];
    }
    const Result none = solve_within(chain, least - 1);
    ASSERT_FALSE(none) << entry["name"];
    EXPECT_EQ(none.error().least_bytes, least);
    EXPECT_TRUE(solve_within(chain, least));
  }
}

TEST(GoldenDiscrepancies, WhereRotorDeviatesTheExactOptimumIsFound) {
  for (const auto& entry : golden("discrepancies.json")) {
    const Chain chain = golden_chain(entry);
    const int64_t bytes = entry["M"];
    EXPECT_EQ(persistent_seconds(chain, bytes),
              entry["optimal_persistent"].get<int64_t>());
    EXPECT_EQ(exhaustive_seconds(chain, bytes),
              entry["unrestricted"].get<int64_t>());
    const Result plan = solve_within(chain, bytes);
    ASSERT_TRUE(plan);
    EXPECT_LE(plan->peak_bytes, bytes);
    EXPECT_LE(plan->seconds, entry["optimal_persistent"]);
    EXPECT_GE(plan->seconds, entry["unrestricted"]);
  }
}

TEST(GoldenRevolve, ClosedFormAndSchedule) {
  for (const auto& entry : golden("revolve_homogeneous.json")) {
    const int stages = entry["L"];
    const int slots = entry["c"];
    const int64_t advances = entry["advances"];
    EXPECT_EQ(binomial_advances(stages, slots), advances);
    if (advances > 100000) {
      continue;
    }
    // Every value a byte, and a saved state no more than its output: the peak
    // says how many slots are in use. Beside them are at most the value that
    // moves forward, the saved state and two gradients.
    const Chain chain = equal_chain(stages, 1, 1);
    const auto run = simulate(chain, binomial(stages, slots), false);
    EXPECT_EQ(run.recompute_seconds, advances) << stages << " " << slots;
    EXPECT_LE(run.peak_bytes, std::min(slots, stages) + 4);
  }
}

TEST(GoldenSegments, PeakAndTime) {
  for (const auto& entry : golden("sqrt_segments.json")) {
    const int stages = entry["L"];
    const Chain chain = equal_chain(stages, entry["a"], entry["abar"]);
    SolveOptions options;
    options.solver = "segments";
    options.segments = entry["segments"];
    const Result plan = solve(chain, options);
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->seconds, entry["time"]);
    EXPECT_EQ(plan->peak_bytes, entry["peak"]);
    EXPECT_EQ(plan->extra_seconds, entry["extra_forward"]);
    EXPECT_EQ(keep_all_bytes(chain), entry["no_recompute_peak"]);
    if (entry["optimal_time_at_same_peak"].is_number()) {
      const Result best = solve_within(chain, plan->peak_bytes);
      ASSERT_TRUE(best);
      EXPECT_LE(best->seconds, entry["optimal_time_at_same_peak"]);
    }
  }
}

}  // namespace
}  // namespace remat::plan
