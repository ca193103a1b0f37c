#include "remat/profile/fit_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>
#include <fstream>

#include "remat/base/error.h"
#include "remat/memory/cpu_allocator.h"
#include "remat/memory/meter.h"
#include "remat/memory/process.h"
#include "remat/profile/profile_cache.h"

namespace remat {
namespace {

namespace fs = std::filesystem;

using Stack = torch::nn::ModuleHolder<LayerStack<torch::nn::SequentialImpl>>;

Stack stack_of(int layers) {
  Stack stack;
  for (int i = 0; i < layers; ++i) {
    stack->push_back(torch::nn::Linear(64, 64));
    stack->push_back(torch::nn::Tanh());
  }
  return stack;
}

// 2 MiB a value.
at::Tensor sample() { return at::ones({8192, 64}); }

class FitMemory : public testing::Test {
 protected:
  FitMemory() {
    install_cpu_allocator();
    at::manual_seed(3);
  }
  ~FitMemory() override { set_cpu_allocator_limit(INT64_MAX); }

  static std::vector<at::Tensor> gradients(Stack& stack, const at::Tensor& x) {
    stack->zero_grad();
    stack->forward(x).sum().backward();
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : stack->parameters()) {
      all.push_back(parameter.grad().clone());
    }
    return all;
  }
};

TEST_F(FitMemory, SetsAPlanThatHoldsTheBudgetAndChangesNoBit) {
  Stack stack = stack_of(12);
  const at::Tensor x = sample();
  stack->plan = LayerPlan::plain();
  const auto expected = gradients(stack, x);
  MemoryPlan plan;
  int64_t least = 0;
  try {
    fit_memory(*stack, x, 1 << 20);
    FAIL() << "one mebibyte was enough";
  } catch (const NoPlanError& error) {
    least = error.least_bytes();
    EXPECT_GT(least, 20 << 20);
  }
  EXPECT_EQ(stack->plan.kind(), LayerPlan::Kind::kPlain);
  plan = fit_memory(*stack, x, least + (4 << 20));
  EXPECT_EQ(stack->plan.kind(), LayerPlan::Kind::kPlanned);
  EXPECT_GT(plan.plan.extra_seconds, 0);
  EXPECT_LE(plan.plan.peak_bytes, plan.budget_bytes);
  EXPECT_GT(plan.unbounded_peak_bytes, plan.budget_bytes);
  EXPECT_NE(plan.explain().find("recomputed"), std::string::npos);
  const auto got = gradients(stack, x);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(at::equal(got[i], expected[i])) << i;
  }
  EXPECT_LE(resident_bytes(), plan.budget_bytes);
  // Keeping everything would pass it.
  stack->plan = LayerPlan::plain();
  EXPECT_THROW(gradients(stack, x), BudgetError);
}

TEST_F(FitMemory, CountsWhatIsToCome) {
  Stack stack = stack_of(2);
  for (const at::Tensor& parameter : stack->parameters()) {
    parameter.set_requires_grad(parameter.dim() == 1);
  }
  constexpr int64_t kWeights = 2 * 64 * 65 * 4, kTrained = 2 * 64 * 4;
  const MemoryParts parts = measure_memory_parts(stack->parameters(), 1);
  EXPECT_EQ(parts.weights, kWeights);
  EXPECT_EQ(parts.gradients, kTrained);
  EXPECT_EQ(parts.optimizer, kTrained);
  // Other parameters of the model count with the stack's.
  FitOptions options;
  options.profile.repetitions = 1;
  const at::Tensor head = at::ones({1000}).requires_grad_();
  const MemoryPlan plan = fit_memory(*stack, sample().requires_grad_(),
                                     int64_t{8} << 30, options, {head});
  EXPECT_EQ(plan.parts.weights, kWeights + 4000);
  EXPECT_EQ(plan.parts.optimizer, 2 * (kTrained + 4000));
  EXPECT_EQ(plan.plan.extra_seconds, 0);
}

TEST(ScaledProfile, ShrinksBytesAndTimes) {
  Profile profile;
  profile.chain.input_bytes = 100;
  plan::Stage stage;
  stage.forward_seconds = 2;
  stage.backward_seconds = 4;
  stage.output_bytes = 10;
  stage.saved_bytes = 25;
  stage.forward_workspace_bytes = 3;
  stage.backward_workspace_bytes = 5;
  profile.chain.stages = {stage};
  const Profile half = scaled(profile, 1, 2);
  EXPECT_EQ(half.chain.input_bytes, 50);
  EXPECT_EQ(half.chain.stages[0].forward_seconds, 1);
  EXPECT_EQ(half.chain.stages[0].backward_seconds, 2);
  EXPECT_EQ(half.chain.stages[0].saved_bytes, 13);
  EXPECT_EQ(half.chain.stages[0].forward_workspace_bytes, 2);
  EXPECT_EQ(half.chain.stages[0].backward_workspace_bytes, 5);
}

class Cache : public testing::Test {
 protected:
  Cache()
      : directory_(fs::temp_directory_path() /
                   ("remat_profiles_" + std::to_string(::getpid()))) {
    fs::remove_all(directory_);
  }
  ~Cache() override { fs::remove_all(directory_); }

  Profile get(std::string_view subject) {
    return ProfileCache(directory_).get(subject, [&] {
      ++measured_;
      Profile profile;
      profile.chain.input_bytes = measured_;
      plan::Stage stage;
      stage.name = "a \"stage\"";
      stage.forward_seconds = 0.1;
      profile.chain.stages = {stage};
      profile.gradient_bytes = {17};
      return profile;
    });
  }

  fs::path only_file() const {
    return fs::directory_iterator(directory_)->path();
  }

  const fs::path directory_;
  int measured_ = 0;
};

TEST_F(Cache, MeasuresOnce) {
  const Profile first = get("a"), again = get("a");
  EXPECT_EQ(measured_, 1);
  EXPECT_EQ(plan::to_json(first.chain), plan::to_json(again.chain));
  EXPECT_EQ(again.gradient_bytes, std::vector<int64_t>{17});
  EXPECT_EQ(get("b").chain.input_bytes, 2);
  EXPECT_EQ(get("a").chain.input_bytes, 1);
}

TEST_F(Cache, WhatIsBrokenIsMeasuredAnew) {
  get("a");
  const fs::path file = only_file();
  std::string good;
  std::getline(std::ifstream(file), good, '\0');
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  int expected = 1;
  for (const std::string& text :
       {std::string(), good.substr(0, good.size() / 2),
        replaced("remat-profile/1", "remat-profile/9"),
        replaced("\"gradient_bytes\": [\n  17\n ]", "\"gradient_bytes\": []"),
        replaced("\\\"subject\\\":\\\"a\\\"", "\\\"subject\\\":\\\"c\\\""),
        replaced("0.1", "-1")}) {
    std::ofstream(file) << text;
    get("a");
    EXPECT_EQ(measured_, ++expected) << text;
    get("a");
    EXPECT_EQ(measured_, expected);
  }
}

TEST_F(Cache, WhereNothingCanBeWrittenItMeasures) {
  std::ofstream(directory_) << "a file";
  get("a");
  get("a");
  EXPECT_EQ(measured_, 2);
}

}  // namespace
}  // namespace remat
