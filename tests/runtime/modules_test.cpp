// Regions around torch's own modules: buffers, names, containers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "remat/base/error.h"
#include "remat/runtime/checkpoint.h"
#include "remat/runtime/layer_stack.h"
#include "remat/runtime/recomputing.h"
#include "remat/runtime/sequential.h"

namespace remat {
namespace {

using ::testing::ElementsAre;

at::Tensor values(at::ArrayRef<double> list) {
  return at::tensor(list, at::kDouble);
}

torch::nn::BatchNorm1d batch_norm() {
  torch::nn::BatchNorm1d norm(torch::nn::BatchNorm1dOptions(2));
  norm->to(at::kDouble);
  return norm;
}

// Case 11 of the field, pytorch#96136, efficient_densenet_pytorch#73.
TEST(Modules, BatchNormStatisticsChangeOnce) {
  const at::Tensor x =
      values({1, 10, 3, 14, 5, 18, 7, 22}).view({4, 2}).requires_grad_();
  const at::Tensor weight = values({1, 2, 3, 4, 5, 6, 7, 9}).view({4, 2});
  const auto expect_right = [](torch::nn::BatchNorm1d& norm) {
    EXPECT_TRUE(at::allclose(norm->running_mean, values({0.4, 1.6}), 1e-12));
    EXPECT_TRUE(at::allclose(norm->running_var,
                             values({1.5666666666666669, 3.566666666666667}),
                             1e-12));
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
    EXPECT_TRUE(at::allclose(norm->weight.grad(),
                             values({8.944262965740666, 10.285910125021823}),
                             1e-10));
    EXPECT_TRUE(at::equal(norm->bias.grad(), values({16, 21})));
  };
  const at::Tensor gradient =
      values({-2.6832735228637907e-06, 0.04472096264822336,
              -8.944245076378138e-07, -0.0223608027586423,
              8.944245076378138e-07, -0.08944256816550795,
              2.6832735228637907e-06, 0.0670824082759269})
          .view({4, 2});

  torch::nn::BatchNorm1d alone = batch_norm();
  (checkpoint(alone, x) * weight).sum().backward();
  expect_right(alone);
  EXPECT_TRUE(at::allclose(x.grad(), gradient, 1e-8, 1e-12));

  // Inside another region, which runs its forward again.
  torch::nn::BatchNorm1d nested = batch_norm();
  (checkpoint([&](const at::Tensor& t) { return checkpoint(nested, t * 1); },
              x) *
   weight)
      .sum()
      .backward();
  expect_right(nested);

  // A layer of a run of layers.
  torch::nn::BatchNorm1d listed = batch_norm();
  const std::vector<torch::nn::BatchNorm1d> layers{listed};
  (checkpoint_layers(layers, {true}, x) * weight).sum().backward();
  expect_right(listed);

  torch::nn::BatchNorm1d left_out = batch_norm();
  (checkpoint(CheckpointOptions().module_buffers(false).early_stop(false),
              left_out, x) *
   weight)
      .sum()
      .backward();
  EXPECT_EQ(left_out->num_batches_tracked.item<int64_t>(), 2);
}

// Several batches between forward and backward: what is restored are the values
// of the last forward, and gradients are those of the run without.
TEST(Modules, BuffersKeepWhatLaterForwardsMadeOfThem) {
  torch::nn::BatchNorm1d plain = batch_norm(), regions = batch_norm();
  at::manual_seed(1);
  const at::Tensor a = at::randn({4, 2}, at::kDouble).requires_grad_();
  const at::Tensor b = at::randn({4, 2}, at::kDouble);
  std::vector<at::Tensor> gradients;
  for (auto* norm : {&plain, &regions}) {
    const auto run = [norm](const at::Tensor& t) {
      return (*norm)(t).sin().sum();
    };
    const bool is_region = norm == &regions;
    a.mutable_grad() = at::Tensor();
    const CheckpointOptions options =
        CheckpointOptions().buffers((*norm)->buffers());
    const at::Tensor first = is_region ? checkpoint(options, run, a) : run(a);
    const at::Tensor second = is_region ? checkpoint(options, run, b) : run(b);
    (first + second).backward();
    gradients.push_back(a.grad());
  }
  EXPECT_TRUE(at::equal(gradients[0], gradients[1]));
  EXPECT_TRUE(at::equal(plain->running_mean, regions->running_mean));
  EXPECT_TRUE(at::equal(plain->running_var, regions->running_var));
  EXPECT_TRUE(at::equal(plain->weight.grad(), regions->weight.grad()));
}

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t width)
      : first(register_module("first", torch::nn::Linear(width, 2 * width))),
        second(register_module("second", torch::nn::Linear(2 * width, width))) {
  }
  at::Tensor forward(const at::Tensor& x) {
    ++runs;
    return x + second(first(x).tanh()).tanh();
  }
  torch::nn::Linear first, second;
  int runs = 0;
};
using RecomputingBlock = torch::nn::ModuleHolder<Recomputing<BlockImpl>>;

TEST(Recomputing, KeepsNamesAndGradients) {
  at::manual_seed(3);
  torch::nn::ModuleHolder<BlockImpl> plain(4);
  at::manual_seed(3);
  RecomputingBlock regions(4);
  std::vector<std::string> names;
  for (const auto& item : regions->named_parameters()) {
    names.push_back(item.key());
    EXPECT_TRUE(at::equal(item.value(), plain->named_parameters()[item.key()]));
  }
  EXPECT_THAT(names, ElementsAre("first.weight", "first.bias", "second.weight",
                                 "second.bias"));
  const at::Tensor x = at::randn({3, 4});
  plain(x).sum().backward();
  regions(x).sum().backward();
  EXPECT_EQ(plain->runs, 1);
  EXPECT_EQ(regions->runs, 2);
  for (const auto& item : regions->named_parameters()) {
    EXPECT_TRUE(at::equal(item.value().grad(),
                          plain->named_parameters()[item.key()].grad()));
  }
  regions->recompute = false;
  regions(x).sum().backward();
  EXPECT_EQ(regions->runs, 3);
}

// A model of its own depth: found by name, by class and by number.
struct TowerImpl : torch::nn::Module {
  TowerImpl()
      : embedding(register_module("embedding", RecomputingBlock(4))),
        head(register_module("head", torch::nn::Linear(4, 4))) {
    for (int i = 0; i < 5; ++i) {
      layers->push_back(RecomputingBlock(4));
    }
    register_module("layers", layers);
    embedding->is_counted = false;
  }
  RecomputingBlock embedding;
  torch::nn::Sequential layers;
  torch::nn::Linear head;
};

TEST(Recomputing, IsChosenInAModelByPredicateAndByNumber) {
  const auto tower = std::make_shared<TowerImpl>();
  const auto state = [&tower] {
    std::string text(1, tower->embedding->recompute ? 'E' : 'e');
    for (size_t i = 0; i < 5; ++i) {
      text +=
          tower->layers->at<Recomputing<BlockImpl>>(i).recompute ? '1' : '0';
    }
    return text;
  };
  EXPECT_EQ(state(), "E11111");
  EXPECT_EQ(recompute_where(*tower,
                            [](const std::string& name, torch::nn::Module&) {
                              return name == "layers.2" || name == "layers.4";
                            }),
            2);
  EXPECT_EQ(state(), "e00101");
  EXPECT_EQ(recompute_every_nth(*tower, 2), 3);
  EXPECT_EQ(state(), "e10101");
  tower->embedding->recompute = true;
  EXPECT_EQ(recompute_every_nth(*tower, 3), 3);
  EXPECT_EQ(state(), "E10010");
  EXPECT_THAT([&] { recompute_every_nth(*tower, 0); },
              testing::ThrowsMessage<UsageError>(
                  "[layers] every_n_layers is 0; it must be 1 (every layer) or "
                  "more"));
}

TEST(Recomputing, LivesAsLongAsItsGraph) {
  at::Tensor loss;
  std::weak_ptr<torch::nn::Module> layer;
  {
    RecomputingBlock block(4);
    layer = block.ptr();
    loss = block(at::randn({3, 4})).sum();
  }
  EXPECT_FALSE(layer.expired());
  loss.backward();
  loss.reset();
  EXPECT_TRUE(layer.expired());
}

TEST(Recomputing, StandsInSequentialAndInRunsOfLayers) {
  torch::nn::Sequential chain(RecomputingBlock(4), RecomputingBlock(4));
  const at::Tensor x = at::randn({3, 4});
  chain->forward(x).sum().backward();
  EXPECT_EQ((chain->at<Recomputing<BlockImpl>>(0).runs), 2);

  torch::nn::Sequential layers(torch::nn::Linear(4, 4),
                               torch::nn::ModuleHolder<BlockImpl>(4),
                               torch::nn::Linear(4, 4));
  checkpoint_sequential(*layers, 3, x).sum().backward();
  EXPECT_EQ(layers->at<BlockImpl>(1).runs, 2);
}

using Stack = torch::nn::ModuleHolder<LayerStack<torch::nn::SequentialImpl>>;

TEST(LayerStack, RunsByItsPlan) {
  const auto blocks = [](auto make) {
    at::manual_seed(5);
    torch::nn::ModuleHolder<BlockImpl> a(4), b(4), c(4), d(4);
    return make(a, b, c, d);
  };
  torch::nn::Sequential plain =
      blocks([](auto... layers) { return torch::nn::Sequential(layers...); });
  Stack stack = blocks([](auto... layers) { return Stack(layers...); });
  const auto runs = [&stack] {
    std::vector<int> counts;
    for (size_t i = 0; i < stack->size(); ++i) {
      counts.push_back(std::exchange(stack->at<BlockImpl>(i).runs, 0));
    }
    return counts;
  };
  const at::Tensor x = at::randn({3, 4});
  plain->forward(x).sum().backward();
  const auto step = [&](const LayerPlan& plan) {
    stack->plan = plan;
    for (at::Tensor& parameter : stack->parameters()) {
      parameter.mutable_grad() = at::Tensor();
    }
    stack(x).sum().backward();
    for (const auto& item : stack->named_parameters()) {
      EXPECT_TRUE(at::equal(item.value().grad(),
                            plain->named_parameters()[item.key()].grad()))
          << item.key();
    }
    return runs();
  };
  EXPECT_THAT(step(LayerPlan::plain()), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(step(LayerPlan::every_nth(1)), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(step(LayerPlan::every_nth(2)), ElementsAre(2, 1, 2, 1));
  EXPECT_THAT(step(LayerPlan::listed({3})), ElementsAre(1, 1, 1, 2));
  EXPECT_THAT(step(LayerPlan::segments(4)), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(step(LayerPlan::square_root()), ElementsAre(2, 2, 1, 1));
  EXPECT_THAT(step(LayerPlan::nested()), ElementsAre(3, 2, 2, 2));
  using Kind = plan::ActionKind;
  const plan::Schedule schedule{4,
                                {{Kind::kForwardKeep, 0},
                                 {Kind::kForwardDrop, 1},
                                 {Kind::kForwardSave, 2},
                                 {Kind::kFree, 2},
                                 {Kind::kForwardSave, 3},
                                 {Kind::kLoss, 0},
                                 {Kind::kBackward, 3},
                                 {Kind::kForwardKeep, 0},
                                 {Kind::kForwardSave, 1},
                                 {Kind::kBackward, 2},
                                 {Kind::kBackward, 1},
                                 {Kind::kForwardSave, 0},
                                 {Kind::kBackward, 0}}};
  EXPECT_THAT(step(LayerPlan::planned(schedule)), ElementsAre(3, 2, 1, 1));
  stack->plan = LayerPlan::listed({4});
  EXPECT_THROW(stack(x), UsageError);
  EXPECT_TRUE(Stack()->forward(x).is_same(x));
}

}  // namespace
}  // namespace remat
