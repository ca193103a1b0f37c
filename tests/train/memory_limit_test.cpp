// Training within a memory that is named, whatever happens in between.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <optional>

#include "remat/base/error.h"
#include "remat/memory/cpu_allocator.h"
#include "remat/memory/process.h"
#include "remat/train/trainer.h"
#include "tests/train/tiny_model.h"

namespace remat::train {
namespace {

using ::testing::HasSubstr;

class Observer : public TrainObserver {
 public:
  void on_plan(const BatchPlan& made) override { plan = made; }
  void on_step(const StepReport& report) override {
    if (after_step) {
      after_step(report.step);
    }
  }
  std::optional<BatchPlan> plan;
  std::function<void(int64_t)> after_step;
};

// Layers whose values are larger than what allocators round.
nn::BigBirdConfig config() {
  nn::BigBirdConfig config = tiny_config(4);
  config.hidden_size = 64;
  config.intermediate_size = 256;
  return config;
}

class MemoryLimit : public testing::Test {
 protected:
  MemoryLimit() { install_cpu_allocator(); }
  ~MemoryLimit() override { set_cpu_allocator_limit(INT64_MAX); }

  TrainOptions options(std::optional<int64_t> memory_bytes) const {
    TrainOptions options;
    options.per_device_train_batch_size = 8;
    options.max_steps = 5;
    options.memory_bytes = memory_bytes;
    return options;
  }

  std::vector<double> losses(const TrainOptions& options,
                             Observer& observer) const {
    at::manual_seed(1);
    nn::BigBirdClassifier model(config());
    return train(model, texts_, &held_, 0, options, observer).losses;
  }

  // What the least plan takes now, and a little. The first time libraries make
  // what they keep for themselves: the second counts.
  int64_t tight_budget(TrainOptions options) const {
    Observer unseen;
    losses(options, unseen);
    options.memory_bytes = 1;
    int64_t least = 0;
    for (int i = 0; i < 2; ++i) {
      Observer observer;
      try {
        losses(options, observer);
        ADD_FAILURE() << "one byte was enough";
      } catch (const NoPlanError& error) {
        least = error.least_bytes();
      }
      set_cpu_allocator_limit(INT64_MAX);
    }
    return least + (2 << 20);
  }

  // Batches of all lengths, of both kinds of attention.
  const data::Dataset texts_ = tiny_dataset(64, 20, 250);
  const data::Dataset held_ = tiny_dataset(16, 100, 250, 9);
};

TEST_F(MemoryLimit, HoldsThroughShapesEvaluationsAndAccumulatedBatches) {
  TrainOptions plain = options(std::nullopt);
  plain.eval_steps = 1;
  plain.gradient_accumulation_steps = 2;
  TrainOptions limited = plain;
  limited.memory_bytes = tight_budget(plain);
  Observer observer;
  // Since then, where the system lets it be asked.
  const bool is_peak_reset =
      bool(std::ofstream("/proc/self/clear_refs") << 5 << std::flush);
  const std::vector<double> in_memory = losses(limited, observer);
  if (is_peak_reset) {
    EXPECT_LE(peak_resident_bytes(), *limited.memory_bytes);
  }
  ASSERT_TRUE(observer.plan.has_value());
  EXPECT_GT(observer.plan->memory.plan.extra_seconds, 0);
  set_cpu_allocator_limit(INT64_MAX);
  EXPECT_EQ(losses(plain, observer), in_memory);
}

TEST_F(MemoryLimit, CountsAnotherModelInTheProcess) {
  const at::Tensor other = at::ones({24 << 20}, at::kByte);
  const int64_t budget = tight_budget(options(std::nullopt));
  Observer first, second;
  const std::vector<double> alone = losses(options(budget), first);
  EXPECT_EQ(first.plan->memory.parts.total(),
            first.plan->memory.chain.fixed_bytes);
  set_cpu_allocator_limit(INT64_MAX);
  // As much again as it had room for.
  const at::Tensor more = at::ones({64 << 20}, at::kByte);
  EXPECT_THROW(losses(options(budget), second), NoPlanError);
  set_cpu_allocator_limit(INT64_MAX);
  EXPECT_EQ(losses(options(budget + (66 << 20)), second), alone);
}

TEST_F(MemoryLimit, PastItTheErrorNamesWhatHoldsTheMemory) {
  Observer observer;
  observer.after_step = [](int64_t step) {
    if (step == 2) {
      release_cached_cpu_memory();
      set_cpu_allocator_limit(cpu_allocator_stats().live_bytes + (3 << 20));
    }
  };
  try {
    losses(options(int64_t{8} << 30), observer);
    FAIL() << "a step in 3 MiB";
  } catch (const BudgetError& error) {
    const std::string text = error.what();
    EXPECT_GT(error.missing_bytes(), 0);
    EXPECT_THAT(text, HasSubstr("[train] step 3 needs more than --memory 8.00 "
                                "GiB; here --memory 819"));
    EXPECT_THAT(text,
                HasSubstr("MiB would do.\n[memory] large tensors may use"));
    EXPECT_THAT(text, HasSubstr("\n         activations "));
    EXPECT_THAT(text, HasSubstr("layer 0 "));
    EXPECT_THAT(text, HasSubstr("\n         weights "));
    EXPECT_THAT(text, HasSubstr("\n         optimizer "));
  }
}

// Ten steps: what was asked for, and what the system gave, within 5%.
TEST_F(MemoryLimit, ResidentMemoryIsThatOfTheTensors) {
  TrainOptions ten = options(std::nullopt);
  ten.max_steps = 10;
  Observer observer;
  cpu_memory_ledger().reset_peak();
  const std::vector<double> unlimited = losses(ten, observer);
  const int64_t asked = cpu_memory_ledger().at_peak().total;
  EXPECT_GT(asked, 20 << 20);
  release_cached_cpu_memory();
  set_cpu_allocator_limit(asked + asked / 20);
  EXPECT_EQ(losses(ten, observer), unlimited);
}

}  // namespace
}  // namespace remat::train
