// Profiles: bytes counted by hand, nothing left behind, and plans made from
// them that hold.
#include "remat/profile/profile_stages.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "remat/base/error.h"
#include "remat/memory/meter.h"
#include "remat/plan/bounds.h"
#include "remat/plan/region_plan.h"
#include "remat/plan/solve.h"

namespace remat {
namespace {

using torch::autograd::grad;

constexpr int64_t kRow = 1 << 20;

at::Tensor row() { return at::full({kRow / 4}, 0.5f).requires_grad_(); }

// Once each: counts are no matter of repetition.
ProfileOptions once() {
  ProfileOptions options;
  options.repetitions = 1;
  options.seconds_per_stage = 0;
  return options;
}

PlanStage sines(int count) {
  return {[count](at::Tensor t) {
            for (int i = 0; i < count; ++i) {
              t = t.sin();
            }
            return t;
          },
          {}};
}

TEST(ProfileStages, CountsBytesOfValuesAndTemporaries) {
  const plan::Chain chain =
      profile_stages({sines(1), sines(3)}, row(), once()).chain;
  ASSERT_EQ(chain.length(), 2);
  EXPECT_EQ(chain.input_bytes, kRow);
  const plan::Stage& one = chain.stages[0];
  EXPECT_EQ(one.name, "stage 0");
  EXPECT_EQ(one.output_bytes, kRow);
  // A sine saves its input.
  EXPECT_EQ(one.saved_bytes, kRow);
  EXPECT_EQ(one.forward_workspace_bytes, 0);
  // The cosine.
  EXPECT_EQ(one.backward_workspace_bytes, kRow);
  EXPECT_GT(one.forward_seconds, 0);
  EXPECT_GT(one.backward_seconds, 0);
  EXPECT_EQ(chain.stages[1].saved_bytes, 3 * kRow);
  EXPECT_LE(chain.stages[1].backward_workspace_bytes, 2 * kRow);
}

// Twice as large as a value: what is there only for a moment.
TEST(ProfileStages, CountsTheWorstMoment) {
  const plan::Chain chain =
      profile_stages({{[](const at::Tensor& t) {
                         return t.unsqueeze(0).repeat({4, 1}).sum(0) + t;
                       },
                       {}}},
                     row(), once())
          .chain;
  EXPECT_EQ(chain.stages[0].saved_bytes, kRow);
  EXPECT_GE(chain.stages[0].forward_workspace_bytes, 4 * kRow);
}

TEST(ProfileStages, WeightsAreNobodysAndTheirGradientsTemporary) {
  const at::Tensor weight = at::ones({512, 512}).requires_grad_();
  const at::Tensor x = at::ones({2, 512}).requires_grad_();
  const int64_t weight_bytes = 512 * 512 * 4;
  ProfileOptions options = once();
  for (const bool exist : {true, false}) {
    options.gradients_exist = exist;
    const Profile profile = profile_stages(
        {{[&](const at::Tensor& t) { return at::mm(t, weight); }, {}}}, x,
        options);
    const plan::Stage& stage = profile.chain.stages[0];
    EXPECT_EQ(profile.gradient_bytes[0], weight_bytes);
    EXPECT_EQ(stage.saved_bytes, 2 * 512 * 4);
    // Added to the one that exists; itself the one that stays.
    const int64_t temporary = exist ? weight_bytes : 0;
    EXPECT_GE(stage.backward_workspace_bytes, temporary);
    EXPECT_LE(stage.backward_workspace_bytes, temporary + kRow / 8);
    EXPECT_FALSE(weight.grad().defined());
  }
}

TEST(ProfileStages, LeavesNoTrace) {
  at::manual_seed(4);
  const at::Tensor weight = at::randn({8, 8}).requires_grad_();
  const at::Tensor bias = at::zeros({8}).requires_grad_();
  bias.mutable_grad() = at::full({8}, 3.0f);
  const at::Tensor mean = at::zeros({8});
  const at::Tensor x = at::randn({8, 8}).requires_grad_();
  const std::vector<PlanStage> stages = {
      {[&](const at::Tensor& t) {
         return at::dropout(at::mm(t, weight) + bias, 0.5, true);
       },
       {}},
      {[&](const at::Tensor& t) {
         return at::batch_norm(t, {}, {}, mean, at::ones({8}), true, 0.1, 1e-5,
                               false);
       },
       {mean}}};
  at::manual_seed(7);
  const double next = at::rand({1}).item<double>();
  at::manual_seed(7);
  profile_stages(stages, x);
  EXPECT_EQ(at::rand({1}).item<double>(), next);
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_TRUE(at::equal(bias.grad(), at::full({8}, 3.0f)));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(at::equal(mean, at::zeros({8})));
}

TEST(ProfileStages, TheInputMayBeNumbersOfWords) {
  const at::Tensor words = at::ones({100, 16}).requires_grad_();
  const at::Tensor ids = at::arange(10);
  const plan::Chain chain =
      profile_stages(
          {{[&](const at::Tensor& t) { return at::embedding(words, t); }, {}},
           sines(2)},
          ids, once())
          .chain;
  EXPECT_EQ(chain.input_bytes, 80);
  EXPECT_EQ(chain.stages[0].output_bytes, 10 * 16 * 4);
  EXPECT_GT(chain.stages[1].backward_seconds, 0);
  // Without weights and without gradients of the input there is no backward.
  const plan::Chain frozen =
      profile_stages({sines(1)}, row().detach(), once()).chain;
  EXPECT_EQ(frozen.stages[0].backward_seconds, 0);
}

// A block of a transformer without attention.
std::vector<PlanStage> blocks(int count, int64_t width) {
  std::vector<PlanStage> stages;
  for (int i = 0; i < count; ++i) {
    const int64_t inner = width * (1 + i % 4);
    const at::Tensor up = (at::randn({width, inner}) * 0.05).requires_grad_();
    const at::Tensor down = (at::randn({inner, width}) * 0.05).requires_grad_();
    stages.push_back(
        {[=](const at::Tensor& t) {
           const at::Tensor normal = at::layer_norm(t, {width});
           return t + at::dropout(at::mm(at::gelu(at::mm(normal, up)), down),
                                  0.1, true);
         },
         {}});
  }
  return stages;
}

TEST(ProfileStages, PlansFromItStayWithinTheirBudget) {
  at::manual_seed(1);
  const std::vector<PlanStage> stages = blocks(8, 64);
  const at::Tensor x = at::randn({1024, 64}).requires_grad_();
  const plan::Chain chain = profile_stages(stages, x, once()).chain;
  const at::Tensor ones = at::ones({1024, 64});
  // Gradients of weights are there, as the profile takes them to be.
  run_plan(std::make_shared<const plan::RegionPlan>(plan::RegionPlan{
               .stages = 1, .steps = {{.begin = 0, .end = 1}}}),
           {stages[0]}, CheckpointOptions(), x);
  at::Tensor out = x;
  for (const PlanStage& stage : stages) {
    out = stage.forward(out);
  }
  torch::autograd::backward({out}, {ones});
  out.reset();

  plan::SolveOptions all;
  all.solver = "keep-all";
  const int64_t most = plan::solve(chain, all)->peak_bytes;
  const int64_t least = plan::least_budget(chain);
  ASSERT_LT(least, most / 2);
  for (int i = 0; i <= 4; ++i) {
    plan::SolveOptions options;
    options.budget_bytes = least + (most - least) * i / 4;
    const plan::Result plan = plan::solve(chain, options);
    ASSERT_TRUE(plan);
    const MemoryMeter meter;
    torch::autograd::backward(
        {run_plan(std::make_shared<const plan::RegionPlan>(
                      plan::region_plan(plan->schedule)),
                  stages, CheckpointOptions(), x)},
        {ones});
    // The input is not new here.
    const auto planned =
        static_cast<double>(plan->peak_bytes - chain.input_bytes);
    const auto measured = static_cast<double>(meter.peak_bytes());
    EXPECT_LE(measured, 1.03 * planned + (1 << 15)) << "budget " << i;
    EXPECT_GE(measured, 0.9 * planned) << "budget " << i;
  }
}

// An encoder's output that three layers of a decoder read.
TEST(ProfileStages, CountsWhatIsPassedOnOnce) {
  using Tensors = std::vector<at::Tensor>;
  std::vector<ListStage> stages{
      {.forward = [](const Tensors& t) { return Tensors{t[0].sin()}; },
       .name = "encoder"},
      {.forward =
           [](const Tensors& t) {
             return Tensors{t[0].cos(), t[0]};
           },
       .name = "begin"}};
  for (int i = 0; i < 3; ++i) {
    stages.push_back({.forward = [](const Tensors& t) {
      return Tensors{t[0].exp() * t[1], t[1]};
    }});
  }
  stages.push_back(
      {.forward = [](const Tensors& t) { return Tensors{t[0].sin()}; }});
  const at::Tensor x = row();
  const Profile profile = profile_stages(stages, Tensors{x}, once());
  EXPECT_EQ(profile.shared_bytes, 2 * kRow);
  EXPECT_EQ(profile.chain.stages[0].name, "encoder");
  EXPECT_EQ(profile.chain.stages[1].output_bytes, kRow);
  // The exponential, and the product.
  EXPECT_EQ(profile.chain.stages[2].output_bytes, kRow);
  EXPECT_EQ(profile.chain.stages[2].saved_bytes, 2 * kRow);
  const at::Tensor ones = at::ones({kRow / 4});
  at::Tensor expected;
  {
    Tensors values{x};
    for (const ListStage& stage : stages) {
      values = stage.forward(values);
    }
    expected = grad({values[0]}, {x}, {ones})[0];
  }
  plan::Chain chain = profile.chain;
  chain.fixed_bytes = profile.shared_bytes;
  int recomputing = 0;
  for (int64_t budget = plan::least_budget(chain); budget <= 24 * kRow;
       budget += kRow) {
    plan::SolveOptions options;
    options.budget_bytes = budget;
    const plan::Result plan = plan::solve(chain, options);
    ASSERT_TRUE(plan);
    recomputing += plan->extra_seconds > 0;
    const MemoryMeter meter;
    Tensors out =
        run_plan(std::make_shared<const plan::RegionPlan>(
                     plan::region_plan(plan->schedule)),
                 stages, CheckpointOptions().preserve_rng_state(false), {x});
    EXPECT_TRUE(at::equal(grad({out[0]}, {x}, {ones})[0], expected));
    // The input is older than the meter; its gradient stays to the end.
    EXPECT_LE(meter.peak_bytes(), plan->peak_bytes + kRow / 8);
  }
  EXPECT_GE(recomputing, 2);
}

TEST(ProfileStages, BadInputIsAnError) {
  const auto error = [](const std::function<void()>& action) -> std::string {
    try {
      action();
    } catch (const UsageError& usage) {
      return usage.what();
    }
    return "no error";
  };
  EXPECT_EQ(error([] { profile_stages({}, row()); }),
            "[profile] there are no stages");
  EXPECT_EQ(error([] {
              const c10::NoGradGuard no_grad;
              profile_stages({sines(1)}, row());
            }),
            "[profile] gradients are off; a profile measures backward too");
  EXPECT_THROW(profile_stages({{[](const at::Tensor&) -> at::Tensor {
                                  throw std::runtime_error("the stage's own");
                                },
                                {}}},
                              row()),
               std::runtime_error);
}

}  // namespace
}  // namespace remat
