// Which batches get which plans, and when one is made.
#include "remat/train/memory_planner.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>
#include <string>

#include "remat/base/error.h"
#include "remat/memory/cpu_allocator.h"
#include "tests/train/tiny_model.h"

namespace remat::train {
namespace {

constexpr int64_t kPlenty = int64_t{64} << 30;

int64_t total_runs(const nn::BigBirdClassifier& model) {
  return std::accumulate(model.half_runs().begin(), model.half_runs().end(),
                         int64_t{0});
}

class MemoryPlans : public testing::Test {
 protected:
  MemoryPlans() : model_(tiny_config()) { install_cpu_allocator(); }

  // Whether a plan was made for it: profiling runs the layers.
  bool is_planned_for(MemoryPlanner& planner, int64_t texts, int64_t length) {
    const int64_t before = total_runs(model_);
    planner.apply(texts, length);
    return total_runs(model_) > before;
  }

  nn::BigBirdClassifier model_;
};

TEST_F(MemoryPlans, LargerBatchesGetPlansOfTheirOwnOnce) {
  MemoryPlanner planner(model_, kPlenty, true, {});
  planner.plan(4, 16);
  EXPECT_FALSE(is_planned_for(planner, 4, 16));
  EXPECT_FALSE(is_planned_for(planner, 2, 10));
  // Fewer tokens, but attention takes the square of the length.
  EXPECT_TRUE(is_planned_for(planner, 1, 20));
  // Both kinds are covered now, also together.
  EXPECT_FALSE(is_planned_for(planner, 4, 16));
  EXPECT_FALSE(is_planned_for(planner, 4, 20));
  EXPECT_TRUE(is_planned_for(planner, 5, 3));
  EXPECT_FALSE(is_planned_for(planner, 5, 20));
}

// What the process holds is measured after each stage has run once, also where
// the profile is known.
TEST_F(MemoryPlans, AKnownProfileRunsEachLayerOnce) {
  const auto directory = std::filesystem::temp_directory_path() /
                         ("remat_plans_" + std::to_string(::getpid()));
  const ProfileCache cache(directory);
  const auto runs_of = [&](MemoryPlanner& planner, int64_t length) {
    const int64_t before = total_runs(model_);
    planner.plan(2, length);
    return total_runs(model_) - before;
  };
  const int64_t halves = 2 * model_.config().num_hidden_layers;
  MemoryPlanner first(model_, kPlenty, true, cache);
  EXPECT_GT(runs_of(first, 16), 4 * halves);
  MemoryPlanner second(model_, kPlenty, true, cache);
  EXPECT_EQ(runs_of(second, 16), halves);
  EXPECT_GT(runs_of(second, 20), 4 * halves);
  std::filesystem::remove_all(directory);
}

TEST_F(MemoryPlans, PlanningDrawsNothingAndLeavesNoGradients) {
  at::manual_seed(3);
  const double next = at::rand({1}).item<double>();
  at::manual_seed(3);
  MemoryPlanner planner(model_, kPlenty, true, {});
  const MemoryPlan& plan = planner.plan(2, 16).memory;
  EXPECT_EQ(at::rand({1}).item<double>(), next);
  for (const auto& [name, parameter] : model_.named_parameters()) {
    EXPECT_FALSE(parameter.grad().defined()) << name;
  }
  EXPECT_EQ(plan.plan.extra_seconds, 0);
  EXPECT_EQ(plan.plan.peak_bytes, plan.unbounded_peak_bytes);
  EXPECT_EQ(plan.chain.fixed_bytes, plan.parts.total());
  EXPECT_EQ(plan.parts.optimizer, 2 * plan.parts.weights);
}

TEST_F(MemoryPlans, TooLittleNamesTheLeast) {
  try {
    MemoryPlanner(model_, 1 << 20, true, {}).plan(2, 16);
    FAIL() << "nothing was thrown";
  } catch (const NoPlanError& error) {
    EXPECT_EQ(std::string(error.what())
                  .rfind("[memory] no plan fits 1.00 MiB: the least is ", 0),
              0u)
        << error.what();
  }
  set_cpu_allocator_limit(INT64_MAX);
}

}  // namespace
}  // namespace remat::train
