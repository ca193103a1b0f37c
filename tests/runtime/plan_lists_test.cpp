// Plans over stages of several tensors: an encoder whose output every layer of
// a decoder reads.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <random>

#include "remat/memory/meter.h"
#include "remat/plan/bounds.h"
#include "remat/plan/solve.h"
#include "remat/runtime/plan_executor.h"
#include "tests/runtime/random_chain.h"

namespace remat {
namespace {

using torch::autograd::grad;
using Tensors = std::vector<at::Tensor>;

// Stages that count their forwards: encoder layers, the decoder's beginning,
// decoder layers that attend to the encoder's output, the loss.
struct Model {
  Model(int encoder_layers, int decoder_layers)
      : encoder(encoder_layers),
        runs(static_cast<size_t>(encoder_layers + decoder_layers + 2), 0) {
    at::manual_seed(5);
    x = at::randn({6, 8}, at::kDouble).requires_grad_();
    start = at::randn({4, 8}, at::kDouble).requires_grad_();
    for (size_t i = 0; i < runs.size(); ++i) {
      weights.push_back(at::randn({8, 8}, at::kDouble).requires_grad_());
    }
  }

  std::vector<ListStage> stages() {
    std::vector<ListStage> list;
    for (size_t i = 0; i < runs.size(); ++i) {
      list.push_back({.forward = [this, i](const Tensors& t) {
        ++runs[i];
        return forward(i, t);
      }});
    }
    return list;
  }

  Tensors forward(size_t i, const Tensors& t) {
    const at::Tensor& w = weights[i];
    const auto begin = static_cast<size_t>(encoder);
    if (i < begin) {
      return {at::dropout(at::mm(t[0], w).tanh(), 0.2, true)};
    }
    if (i == begin) {
      return {at::mm(start, w), t[0]};
    }
    if (i + 1 == runs.size()) {
      return {(at::mm(t[0], w) * t[0]).sum()};
    }
    const at::Tensor scores = at::mm(t[0], t[1].t()).softmax(-1);
    at::Tensor h = at::mm(at::mm(scores, t[1]), w) + t[0];
    return {h.sigmoid_(), t[1]};
  }

  Tensors leaves() const {
    Tensors all = weights;
    all.push_back(x);
    all.push_back(start);
    return all;
  }

  int encoder;
  at::Tensor x, start;
  Tensors weights;
  std::vector<int> runs;
};

TEST(RunPlanOfLists, EncoderAndDecoderHaveThePlainGradients) {
  std::mt19937_64 random(11);
  int recomputed = 0;
  for (int round = 0; round < 40; ++round) {
    Model model(1 + round % 4, 1 + round % 3);
    const plan::Chain chain = random_chain(random, model.runs.size());
    at::manual_seed(9);
    Tensors plain{model.x};
    for (const ListStage& stage : model.stages()) {
      plain = stage.forward(plain);
    }
    const auto expected = grad({plain[0]}, model.leaves());
    const MemoryMeter meter;
    at::manual_seed(100 + round);
    checkpoint([](const at::Tensor& t) { return t.sin(); }, model.x);
    const int64_t random_bytes = meter.live_bytes();
    for (const int64_t more : {0, 3, 8}) {
      plan::SolveOptions options;
      options.budget_bytes = plan::least_budget(chain) + more;
      options.threads = 1;
      const plan::Result solved = plan::solve(chain, options);
      ASSERT_TRUE(solved);
      const auto plan = std::make_shared<const plan::RegionPlan>(
          plan::region_plan(solved->schedule));
      const std::vector<int> forwards = plan::forwards_of(*plan);
      std::fill(model.runs.begin(), model.runs.end(), 0);
      at::manual_seed(9);
      Tensors out =
          run_plan(plan, model.stages(), CheckpointOptions(), {model.x});
      ASSERT_EQ(out.size(), 1u);
      EXPECT_TRUE(at::equal(out[0], plain[0]));
      auto got = grad({out[0]}, model.leaves(), {}, true);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(at::equal(got[i], expected[i])) << "gradient " << i;
      }
      for (size_t i = 0; i < forwards.size(); ++i) {
        EXPECT_EQ(model.runs[i], forwards[i]) << "stage " << i;
        recomputed += forwards[i] > 1;
      }
      out.clear();
      got.clear();
      EXPECT_EQ(meter.live_bytes(), random_bytes);
    }
  }
  EXPECT_GT(recomputed, 200);
}

// What is passed on is kept by the region that it comes from, not computed
// again; what is new is.
TEST(RunPlanOfLists, OnlyNewOutputsAreUnpinned) {
  using Kind = plan::RegionStep::Kind;
  constexpr int64_t kRow = 1 << 20;
  int encodings = 0, layers = 0;
  const std::vector<ListStage> stages = {
      {.forward =
           [&](const Tensors& t) {
             ++encodings;
             return Tensors{t[0].sin(), t[0].cos()};
           }},
      {.forward =
           [&](const Tensors& t) {
             ++layers;
             return Tensors{t[0].exp(), t[1]};
           }},
      {.forward = [](const Tensors& t) { return Tensors{t[0] * t[1]}; }}};
  // Stage 0 kept; 1 dropped; 2 kept without its inputs.
  const auto plan = std::make_shared<const plan::RegionPlan>(
      plan::RegionPlan{.stages = 3,
                       .steps = {{.begin = 0, .end = 1},
                                 {.kind = Kind::kRegionThenSave,
                                  .begin = 1,
                                  .end = 3,
                                  .inside = {{.begin = 1, .end = 2}}}}});
  const at::Tensor x = at::full({kRow / 8}, 0.5, at::kDouble).requires_grad_();
  const MemoryMeter meter;
  Tensors out = run_plan(plan, stages, CheckpointOptions(), {x});
  // Sine, cosine, the product.
  EXPECT_LE(meter.live_bytes(), 3 * kRow + kRow / 8);
  const at::Tensor expected = grad({(x.sin().exp() * x.cos()).sum()}, {x})[0];
  EXPECT_TRUE(at::equal(grad({out[0].sum()}, {x})[0], expected));
  EXPECT_EQ(encodings, 1);
  EXPECT_EQ(layers, 2);
}

// Nobody asks for what the dropped stage makes, only for what it passes on.
TEST(RunPlanOfLists, WhatIsPassedOnNeedsNoRecomputation) {
  using Kind = plan::RegionStep::Kind;
  int sums = 0;
  const std::vector<ListStage> stages = {
      {.forward =
           [](const Tensors& t) {
             return Tensors{t[0].exp(), t[0]};
           }},
      {.forward =
           [&](const Tensors& t) {
             ++sums;
             return Tensors{t[0] + 1.0, t[1]};
           }},
      {.forward = [](const Tensors& t) { return Tensors{t[0] + t[1].sin()}; }}};
  const auto plan = std::make_shared<const plan::RegionPlan>(
      plan::RegionPlan{.stages = 3,
                       .steps = {{.begin = 0, .end = 1},
                                 {.kind = Kind::kRegionThenSave,
                                  .begin = 1,
                                  .end = 3,
                                  .inside = {{.begin = 1, .end = 2}}}}});
  const at::Tensor x = at::full({4}, 0.5, at::kDouble).requires_grad_();
  Tensors out = run_plan(plan, stages, CheckpointOptions(), {x});
  const at::Tensor expected = grad({(x.exp() + x.sin()).sum()}, {x})[0];
  EXPECT_TRUE(at::equal(grad({out[0].sum()}, {x})[0], expected));
  EXPECT_EQ(sums, 1);
}

}  // namespace
}  // namespace remat
