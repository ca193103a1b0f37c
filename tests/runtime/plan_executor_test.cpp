// Plans of the planner, run: gradients to the bit, forwards as planned, memory
// as simulated.
#include "remat/runtime/plan_executor.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <random>

#include "remat/base/error.h"
#include "remat/memory/meter.h"
#include "remat/plan/bounds.h"
#include "remat/plan/solve.h"
#include "remat/runtime/saved_tensor_hooks.h"
#include "tests/runtime/random_chain.h"

namespace remat {
namespace {

using torch::autograd::grad;

// Stages of several kinds that count their forwards. Each saves its input (of
// one that does not, an unpinned input is never asked for).
struct Model {
  explicit Model(int stages) : runs(static_cast<size_t>(stages), 0) {
    at::manual_seed(5);
    x = at::randn({6, 6}, at::kDouble).requires_grad_();
    for (int i = 0; i < stages; ++i) {
      weights.push_back(at::randn({6, 6}, at::kDouble).requires_grad_());
    }
  }

  std::vector<PlanStage> stages() {
    std::vector<PlanStage> list;
    for (size_t i = 0; i < weights.size(); ++i) {
      list.push_back({[this, i](const at::Tensor& t) {
                        ++runs[i];
                        const at::Tensor& w = weights[i];
                        switch (i % 4) {
                          case 0:  // its input, transposed, is saved
                            return at::mm(t.t(), w).tanh();
                          case 1:  // its input is saved twice
                            return t + (t * w).sin() * t;
                          case 2:
                            return at::dropout((t * w).sigmoid(), 0.3, true);
                          default:  // changed in place, and a view returned
                            at::Tensor y = t * w;
                            return y.relu_().t();
                        }
                      },
                      {}});
    }
    return list;
  }

  std::vector<at::Tensor> leaves() const {
    std::vector<at::Tensor> all = weights;
    all.push_back(x);
    return all;
  }

  at::Tensor x;
  std::vector<at::Tensor> weights;
  std::vector<int> runs;
};

plan::RegionPlan plan_for(const plan::Chain& chain, const std::string& solver,
                          int64_t budget) {
  plan::SolveOptions options;
  options.solver = solver;
  options.budget_bytes = budget;
  options.threads = 1;
  const plan::Result plan = plan::solve(chain, options);
  return plan ? plan::region_plan(plan->schedule) : plan::RegionPlan{};
}

bool has_unpinned(const std::vector<plan::RegionStep>& steps) {
  return std::any_of(steps.begin(), steps.end(), [](const auto& step) {
    return step.kind == plan::RegionStep::Kind::kRegionThenSave ||
           has_unpinned(step.inside);
  });
}

TEST(RunPlan, AnyPlanGivesThePlainGradientsInThePlannedForwards) {
  std::mt19937_64 random(3);
  int unpinned = 0, plans = 0;
  for (int round = 0; round < 60; ++round) {
    const int stages = 2 + round % 10;
    const plan::Chain chain = random_chain(random, static_cast<size_t>(stages));
    Model model(stages);
    at::manual_seed(9);
    at::Tensor plain = model.x;
    for (const PlanStage& stage : model.stages()) {
      plain = stage.forward(plain);
    }
    const auto expected = grad({plain.sum()}, model.leaves());
    // The thread's last random state stays for the next region.
    const MemoryMeter meter;
    at::manual_seed(100 + round);
    checkpoint([](const at::Tensor& t) { return t.sin(); }, model.x);
    const int64_t random_bytes = meter.live_bytes();
    for (const std::string solver :
         {"optimal", "binomial", "segments", "recompute-all", "keep-all"}) {
      for (const int64_t more : {0, 2, 5, 9}) {
        const auto plan = std::make_shared<const plan::RegionPlan>(
            plan_for(chain, solver, plan::least_budget(chain) + more));
        if (plan->stages == 0) {
          continue;
        }
        ++plans;
        unpinned += has_unpinned(plan->steps);
        const std::vector<int> forwards = plan::forwards_of(*plan);
        std::fill(model.runs.begin(), model.runs.end(), 0);
        at::manual_seed(9);
        at::Tensor out =
            run_plan(plan, model.stages(), CheckpointOptions(), model.x);
        EXPECT_EQ(model.runs, std::vector<int>(model.runs.size(), 1));
        EXPECT_TRUE(at::equal(out, plain));
        for (int backward = 1; backward <= 3; ++backward) {
          // Of every second graph the last one frees it as it goes.
          const auto got =
              grad({out.sum()}, model.leaves(), {},
                   /*retain_graph=*/backward < 3 || plans % 2 == 0);
          for (size_t i = 0; i < got.size(); ++i) {
            EXPECT_TRUE(at::equal(got[i], expected[i]))
                << solver << " gradient " << i;
          }
          for (size_t i = 0; i < forwards.size(); ++i) {
            EXPECT_EQ(model.runs[i], 1 + backward * (forwards[i] - 1))
                << solver << " stage " << i << " backward " << backward;
          }
        }
        // A graph that owned itself would stay where backward retained it.
        out.reset();
        EXPECT_EQ(meter.live_bytes(), random_bytes) << solver << ", " << stages;
      }
    }
  }
  EXPECT_GT(plans, 500);
  EXPECT_GT(unpinned, 50);
}

// Rows of 1 MiB; a stage of k sines saves k of them, its input among them.
TEST(RunPlan, PeakMemoryIsThatOfThePlan) {
  constexpr int64_t kRow = 1 << 20;
  const at::Tensor x = at::full({kRow / 4}, 0.5f).requires_grad_();
  plan::Chain chain;
  chain.input_bytes = kRow;
  std::vector<PlanStage> stages;
  for (int i = 0; i < 12; ++i) {
    const int sines = 1 + i % 3;
    stages.push_back({[sines](at::Tensor t) {
                        for (int k = 0; k < sines; ++k) {
                          t = t.sin();
                        }
                        return t;
                      },
                      {}});
    plan::Stage stage;
    stage.forward_seconds = sines;
    stage.backward_seconds = 2 * sines;
    stage.output_bytes = kRow;
    stage.saved_bytes = sines * kRow;
    // A sine before and the one being made; a cosine and its product.
    stage.forward_workspace_bytes = sines > 1 ? kRow : 0;
    stage.backward_workspace_bytes = 2 * kRow;
    chain.stages.push_back(stage);
  }
  at::Tensor plain = x;
  for (const PlanStage& stage : stages) {
    plain = stage.forward(plain);
  }
  const at::Tensor expected = grad({plain}, {x}, {at::ones_like(plain)})[0];
  plain.reset();
  const at::Tensor ones = at::ones_like(x);
  int64_t most = 0;
  for (int64_t budget = plan::least_budget(chain); budget <= 40 * kRow;
       budget += 3 * kRow) {
    plan::SolveOptions options;
    options.budget_bytes = budget;
    const plan::Result plan = plan::solve(chain, options);
    ASSERT_TRUE(plan);
    const MemoryMeter meter;
    {
      const at::Tensor out = run_plan(std::make_shared<const plan::RegionPlan>(
                                          plan::region_plan(plan->schedule)),
                                      stages, CheckpointOptions(), x);
      EXPECT_TRUE(at::equal(grad({out}, {x}, {ones})[0], expected));
    }
    // The input is not new, and the output stays to the end here; numbers and
    // the state of random generators are small.
    EXPECT_LE(meter.peak_bytes(), plan->peak_bytes + kRow / 4)
        << plan::to_text(plan->schedule);
    EXPECT_GE(meter.peak_bytes(), plan->peak_bytes - 3 * kRow)
        << plan::to_text(plan->schedule);
    EXPECT_LE(meter.live_bytes(), kRow / 16);
    most = std::max(most, meter.peak_bytes());
  }
  EXPECT_GT(most, 20 * kRow);
}

// Keep the state of stage 2 and let its input go.
plan::RegionPlan unpinned_plan() {
  plan::RegionStep region{
      .kind = plan::RegionStep::Kind::kRegionThenSave, .begin = 0, .end = 3};
  for (int i = 0; i < 2; ++i) {
    region.inside.push_back({.begin = i, .end = i + 1});
  }
  return {.stages = 3, .steps = {region}};
}

TEST(RunPlan, AnUnpinnedInputIsComputedOnceForAllWhoSavedIt) {
  const at::Tensor x = at::full({4, 4}, 0.5, at::kDouble).requires_grad_();
  int runs = 0;
  const std::vector<PlanStage> stages = {
      {[&](const at::Tensor& t) {
         ++runs;
         return t.sin();
       },
       {}},
      {[](const at::Tensor& t) { return t.exp(); }, {}},
      {[](const at::Tensor& t) {
         // Saved whole, as a view, and not saved: a result.
         return at::mm(t.t(), t).tanh() * t + t.narrow(0, 0, 4).cos();
       },
       {}}};
  int packed = 0;
  at::Tensor out, plain = x;
  for (const PlanStage& stage : stages) {
    plain = stage.forward(plain);
  }
  runs = 0;
  {
    // The hooks around get what the stage saved besides its input: what mm gave
    // to tanh as its result, and what is multiplied.
    const SavedTensorHooks hooks(
        [&](const at::Tensor& t) {
          ++packed;
          return t.clone();
        },
        [](const at::Tensor& t) { return t.clone(); });
    out = run_plan(std::make_shared<const plan::RegionPlan>(unpinned_plan()),
                   stages, CheckpointOptions(), x);
  }
  // The region's input, tanh's result twice.
  EXPECT_EQ(packed, 3);
  const at::Tensor expected = grad({plain.sum()}, {x})[0];
  for (const bool retain : {true, true, false}) {
    const int before = runs;
    EXPECT_TRUE(at::equal(grad({out.sum()}, {x}, {}, retain)[0], expected));
    EXPECT_EQ(runs, before + 1);
  }
}

// Also where the graph, and with it who may ask again, stays.
TEST(RunPlan, AnUnpinnedInputGoesWithItsLastUser) {
  constexpr int64_t kRow = 1 << 20;
  const at::Tensor x = at::full({kRow / 4}, 0.5f).requires_grad_();
  plan::RegionPlan plan{.stages = 16, .steps = {}};
  for (int i = 0; i < 16; i += 2) {
    plan.steps.push_back({.kind = plan::RegionStep::Kind::kRegionThenSave,
                          .begin = i,
                          .end = i + 2,
                          .inside = {{.begin = i, .end = i + 1}}});
  }
  const std::vector<PlanStage> stages(
      16, PlanStage{[](const at::Tensor& t) { return t.sin(); }, {}});
  const at::Tensor ones = at::ones_like(x);
  const MemoryMeter meter;
  const at::Tensor out =
      run_plan(std::make_shared<const plan::RegionPlan>(plan), stages,
               CheckpointOptions(), x);
  // The outputs of the saved stages, the last of them the result.
  EXPECT_LE(meter.live_bytes(), 8 * kRow + kRow / 4);
  grad({out}, {x}, {ones}, /*retain_graph=*/true);
  // One unpinned input, a cosine, and two gradients.
  EXPECT_LE(meter.peak_bytes(), 12 * kRow + kRow / 4);
}

TEST(RunPlan, DoubleBackwardAndNothingLeft) {
  const at::Tensor x = at::full({64, 64}, 0.5, at::kDouble).requires_grad_();
  const std::vector<PlanStage> stages(
      3, PlanStage{[](const at::Tensor& t) { return (t * t).sin() * t; }, {}});
  const auto second_gradient = [&](bool planned) {
    at::Tensor out = x;
    if (planned) {
      out = run_plan(std::make_shared<const plan::RegionPlan>(unpinned_plan()),
                     stages, CheckpointOptions(), x);
    } else {
      for (const PlanStage& stage : stages) {
        out = stage.forward(out);
      }
    }
    const at::Tensor first = grad({out.sum()}, {x}, {}, true, true)[0];
    return grad({first.pow(2).sum()}, {x})[0];
  };
  EXPECT_TRUE(at::equal(second_gradient(true), second_gradient(false)));
  const MemoryMeter meter;
  second_gradient(true);
  EXPECT_EQ(meter.live_bytes(), 0);
}

TEST(RunPlan, AnInputThatIsChangedInPlaceIsNoInputAnyMore) {
  const at::Tensor x = at::full({4, 4}, 0.5, at::kDouble).requires_grad_();
  const std::vector<PlanStage> stages = {
      {[](const at::Tensor& t) { return t.sin(); }, {}},
      {[](const at::Tensor& t) { return t + 1.0; }, {}},
      {[](const at::Tensor& t) {
         at::Tensor y = t;
         y.mul_(2.0);
         return y.exp() * y;
       },
       {}}};
  at::Tensor plain = x;
  for (const PlanStage& stage : stages) {
    plain = stage.forward(plain);
  }
  const at::Tensor out =
      run_plan(std::make_shared<const plan::RegionPlan>(unpinned_plan()),
               stages, CheckpointOptions(), x);
  EXPECT_TRUE(
      at::equal(grad({out.sum()}, {x})[0], grad({plain.sum()}, {x})[0]));
}

TEST(RunPlan, PlansThatDoNotFitTheStagesAreErrors) {
  const at::Tensor x = at::ones({2}).requires_grad_();
  const std::vector<PlanStage> two(
      2, PlanStage{[](const at::Tensor& t) { return t.sin(); }, {}});
  const auto error = [&](plan::RegionPlan plan) -> std::string {
    try {
      run_plan(std::make_shared<const plan::RegionPlan>(std::move(plan)), two,
               CheckpointOptions(), x);
    } catch (const UsageError& usage) {
      return usage.what();
    }
    return "no error";
  };
  EXPECT_EQ(error(unpinned_plan()),
            "[run_plan] the plan is for 3 stages; there are 2");
  EXPECT_EQ(error({.stages = 2,
                   .steps = {{.begin = 0, .end = 1, .way = 1},
                             {.begin = 1, .end = 2}}}),
            "[run_plan] the plan saves stage 0 in way 1; only stages as they "
            "are (way 0) can be run");
  EXPECT_EQ(error({.stages = 2,
                   .steps = {{.begin = 0, .end = 1, .store = 0},
                             {.begin = 1, .end = 2}}}),
            "[run_plan] the plan saves stage 0 and moves its input to store 0; "
            "only inputs of regions can be moved");
  // Without gradients it is the plain run.
  const c10::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(
      run_plan(std::make_shared<const plan::RegionPlan>(plan::RegionPlan{
                   .stages = 2,
                   .steps = {{.begin = 0, .end = 1}, {.begin = 1, .end = 2}}}),
               two, CheckpointOptions(), x),
      x.sin().sin()));
}

}  // namespace
}  // namespace remat
