// Regions under data parallel training: the behaviours that PyTorch tests for
// its wrapper and checkpoint (test_c10d_common), and more, on two ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "remat/distributed/data_parallel.h"
#include "remat/runtime/checkpoint.h"
#include "remat/runtime/dropout.h"
#include "remat/runtime/recompute_group.h"
#include "tests/distributed/ranks.h"
#include "tests/distributed/training.h"

namespace remat::distributed {
namespace {

using Call = Program::Call;
using torch::autograd::backward;

constexpr int64_t kWidth = 6;
const std::vector<int64_t> kSquare{kWidth, kWidth};

at::Tensor input_of(const Call& call) {
  return distributed::input_of(call.rank, call.step, {3, kWidth});
}

// A layer as a region, or plainly.
at::Tensor layer_of(const Call& call, size_t weight, const at::Tensor& x) {
  const at::Tensor w = call.weights[weight];
  return call.region([w](const at::Tensor& t) { return layer(w, t); }, x);
}

at::Tensor loss_of(const at::Tensor& y) { return y.pow(2).sum(); }

// A program that has so many square weights.
Program program_of(size_t weights,
                   std::function<at::Tensor(const Call&)> loss) {
  Program program;
  program.shapes.assign(weights, kSquare);
  program.loss = std::move(loss);
  return program;
}

// Case 1; pytorch#24005, pytorch#65537, accelerate#389, DeepSpeed#2103: a
// weight that two regions use.
TEST(DataParallelRegions, WeightOfTwoRegionsHasItsKnownGradient) {
  on_ranks([](ProcessGroup& group) {
    const auto matrix = [](at::ArrayRef<double> list, int64_t rows) {
      return at::tensor(list, at::kDouble).view({rows, -1});
    };
    const at::Tensor w = matrix({1, 2, -1, 0.5}, 2).requires_grad_();
    DataParallel parallel(group, {w});
    GradientCounter counter({w});
    parallel.prepare_for_forward();
    const at::Tensor x =
        group.rank() == 0 ? matrix({0.5, -1}, 1) : matrix({1.5, 0.25}, 1);
    const auto region = [w](const at::Tensor& t) { return layer(w, t); };
    const at::Tensor loss = loss_of(checkpoint(region, checkpoint(region, x)));
    parallel.prepare_for_backward({});
    backward({loss});
    EXPECT_TRUE(at::allclose(w.grad(),
                             matrix({-0.38673309086786284, 0.4193234008790621,
                                     -0.7762328678625622, -0.21392475961143184},
                                    2),
                             1e-10, 0));
    EXPECT_TRUE(same_on_all_ranks(group, {w.grad()}));
    EXPECT_EQ(counter.take(), std::vector<int>{1});
  });
}

// PyTorch: checkpointing_once.
TEST(DataParallelRegions, OneRegion) {
  on_ranks([](ProcessGroup& group) {
    const Program program = program_of(2, [](const Call& call) {
      return loss_of(layer_of(call, 1, layer(call.weights[0], input_of(call))));
    });
    expect_regions_change_nothing(group, program, Statics::kToo);
  });
}

// PyTorch: checkpointing_unused_params.
TEST(DataParallelRegions, AParameterThatNobodyUses) {
  on_ranks([](ProcessGroup& group) {
    Program program = program_of(3, [](const Call& call) {
      return loss_of(layer_of(call, 1, layer(call.weights[0], input_of(call))));
    });
    program.uses_all = false;
    expect_regions_change_nothing(group, program, Statics::kToo, true);
    // A static graph finds out by itself.
    expect_regions_change_nothing(group, program, Statics::kOnly);
  });
}

// PyTorch: checkpointing_twice, checkpointing_twice_static_graph.
TEST(DataParallelRegions, ALayerTwice) {
  on_ranks([](ProcessGroup& group) {
    const Program program = program_of(2, [](const Call& call) {
      const at::Tensor h = layer(call.weights[0], input_of(call));
      return loss_of(layer_of(call, 1, layer_of(call, 1, h)));
    });
    for (const bool find_unused : {false, true}) {
      expect_regions_change_nothing(group, program, Statics::kToo, find_unused);
    }
  });
}

// PyTorch: checkpointing_dynamic_module: another layer in every step.
TEST(DataParallelRegions, ALayerChosenByTheStep) {
  on_ranks([](ProcessGroup& group) {
    Program program = program_of(2, [](const Call& call) {
      const size_t chosen = static_cast<size_t>(call.step) % 2;
      return loss_of(
          layer_of(call, chosen, layer_of(call, chosen, input_of(call))));
    });
    program.uses_all = false;
    expect_regions_change_nothing(group, program, Statics::kNo, true);
  });
}

// Beyond PyTorch's: each rank another one. The unused gradient of one rank is
// zero in the mean.
TEST(DataParallelRegions, ALayerChosenByTheRank) {
  on_ranks([](ProcessGroup& group) {
    Program program = program_of(3, [](const Call& call) {
      const auto chosen = static_cast<size_t>(call.step + call.rank) % 3;
      return loss_of(
          layer_of(call, chosen, layer_of(call, chosen, input_of(call))));
    });
    program.uses_all = false;
    expect_regions_change_nothing(group, program, Statics::kNo, true);
  });
}

// PyTorch: checkpointing_dynamic_weight_sharing. Two layers of one weight with
// a bias each, of which a step uses one.
TEST(DataParallelRegions, SharedWeightAndABiasChosenByTheStep) {
  on_ranks([](ProcessGroup& group) {
    Program program = program_of(1, [](const Call& call) {
      const at::Tensor w = call.weights[0];
      const at::Tensor bias =
          call.weights[1 + static_cast<size_t>(call.step) % 2];
      const auto biased = [w, bias](const at::Tensor& t) {
        return at::tanh(at::addmm(bias, t, w.t()));
      };
      return loss_of(call.region(biased, call.region(biased, input_of(call))));
    });
    program.shapes.insert(program.shapes.end(), 2, {kWidth});
    program.uses_all = false;
    expect_regions_change_nothing(group, program, Statics::kNo, true);
  });
}

// PyTorch: checkpointing_weight_sharing. The region stands around the whole of
// what data parallel wraps, and with PyTorch's hooks a static graph then fails.
TEST(DataParallelRegions, ARegionAroundTheWholeModel) {
  on_ranks([](ProcessGroup& group) {
    Program program = program_of(2, [](const Call& call) {
      const auto model = [call](const at::Tensor& x) {
        call.prepare_for_forward();
        const at::Tensor y = layer(
            call.weights[0], layer(call.weights[1], layer(call.weights[0], x)));
        call.prepare_for_backward({y});
        return y;
      };
      return loss_of(call.region(model, input_of(call)));
    });
    program.own_prepare = true;
    for (const bool find_unused : {false, true}) {
      expect_regions_change_nothing(group, program, Statics::kToo, find_unused);
    }
  });
}

// PyTorch: checkpointing_twice_weight_sharing.
TEST(DataParallelRegions, LayersOfOneWeightTwice) {
  on_ranks([](ProcessGroup& group) {
    Program program = program_of(1, [](const Call& call) {
      const auto biased = [&](size_t bias) {
        return
            [w = call.weights[0], b = call.weights[bias]](const at::Tensor& t) {
              return at::tanh(at::addmm(b, t, w.t()));
            };
      };
      at::Tensor h = input_of(call);
      for (const size_t bias : {1, 2, 1, 2}) {
        h = call.region(biased(bias), h);
      }
      return loss_of(h);
    });
    program.shapes.insert(program.shapes.end(), 2, {kWidth});
    expect_regions_change_nothing(group, program, Statics::kToo);
  });
}

TEST(DataParallelRegions, NestedRegions) {
  on_ranks([](ProcessGroup& group) {
    const Program program = program_of(3, [](const Call& call) {
      const auto inner = [call](const at::Tensor& t) {
        return layer_of(call, 2, layer_of(call, 1, t)) + t;
      };
      const auto outer = [call, inner](const at::Tensor& t) {
        return call.region(inner, layer_of(call, 0, call.region(inner, t)));
      };
      return loss_of(call.region(outer, input_of(call)));
    });
    expect_regions_change_nothing(group, program, Statics::kToo);
  });
}

// Each rank draws masks of its own, ATen's and ours.
TEST(DataParallelRegions, DropoutThatDiffersBetweenRanks) {
  on_ranks([](ProcessGroup& group) {
    const Program program = program_of(2, [](const Call& call) {
      const auto noisy = [call](const at::Tensor& t) {
        const at::Tensor h =
            at::dropout(layer(call.weights[0], t), 0.4, true) + t;
        return Dropout(0.3)(layer(call.weights[1], h)) + h;
      };
      return loss_of(call.region(noisy, call.region(noisy, input_of(call))));
    });
    expect_regions_change_nothing(group, program, Statics::kToo);
    at::manual_seed(static_cast<uint64_t>(group.rank()));
    EXPECT_FALSE(same_on_all_ranks(
        group, {at::dropout(at::ones({64}, at::kDouble), 0.5, true)}));
  });
}

// pytorch#70865, Megatron-LM#6153: code in the model can tell the
// recomputation from a forward, and counts each step once.
TEST(DataParallelRegions, RecomputationIsNoForward) {
  on_ranks([](ProcessGroup& group) {
    int forwards = 0, recomputations = 0;
    Program program = program_of(1, [&](const Call& call) {
      const auto counted = [call, &forwards,
                            &recomputations](const at::Tensor& t) {
        ++(is_recomputing() ? recomputations : forwards);
        return layer(call.weights[0], t);
      };
      return loss_of(call.region(counted, input_of(call)));
    });
    expect_regions_change_nothing(group, program, DataParallelOptions());
    // Plainly, with regions, and before each of both by hand.
    EXPECT_EQ(forwards, 4 * program.steps);
    EXPECT_EQ(recomputations, program.steps);
  });
}

// pytorch#121594: several tasks on one trunk.
TEST(DataParallelRegions, SeveralLosses) {
  on_ranks([](ProcessGroup& group) {
    const Program program = program_of(3, [](const Call& call) {
      const at::Tensor trunk = layer_of(call, 0, input_of(call));
      return loss_of(layer_of(call, 1, trunk)) +
             layer_of(call, 2, trunk).abs().sum() * 0.3;
    });
    expect_regions_change_nothing(group, program, Statics::kToo);
  });
}

// A backward pass for each loss: all but the last add up inside NoSync; in a
// RecomputeGroup they share one recomputation.
TEST(DataParallelRegions, ABackwardPassForEachLoss) {
  on_ranks([](ProcessGroup& group) {
    std::vector<Weights> gradients;
    for (const bool regions : {false, true}) {
      at::manual_seed(8);
      Weights weights;
      for (int i = 0; i < 3; ++i) {
        weights.push_back(at::randn(kSquare, at::kDouble).requires_grad_());
      }
      DataParallel parallel(group, weights);
      int recomputations = 0;
      const auto heads = [&](const at::Tensor& t) {
        recomputations += is_recomputing() ? 1 : 0;
        return std::make_pair(layer(weights[1], t), layer(weights[2], t));
      };
      for (int step = 0; step < 3; ++step) {
        for (const at::Tensor& weight : weights) {
          weight.mutable_grad() = at::Tensor();
        }
        const RecomputeGroup shared;
        at::Tensor loss_b;
        {
          const NoSync no_sync(parallel);
          parallel.prepare_for_forward();
          const at::Tensor trunk = layer(
              weights[0], distributed::input_of(group.rank(), step, {3, 6}));
          const auto [a, b] = regions ? checkpoint(heads, trunk) : heads(trunk);
          loss_b = loss_of(b);
          const at::Tensor loss_a = loss_of(a);
          parallel.prepare_for_backward({loss_a, loss_b});
          backward({loss_a}, {}, /*retain_graph=*/true);
        }
        EXPECT_FALSE(same_on_all_ranks(group, {weights[0].grad()}));
        parallel.prepare_for_forward();
        // Here every parameter's gradient must arrive, if only a zero.
        const at::Tensor rest = loss_b + weights[1].sum() * 0;
        parallel.prepare_for_backward({rest});
        backward({rest});
        gradients.push_back(gradients_of(weights));
        EXPECT_TRUE(same_on_all_ranks(group, gradients.back()));
        EXPECT_EQ(recomputations, regions ? step + 1 : 0);
      }
    }
    for (size_t step = 0; step < 3; ++step) {
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(same_bits(gradients[step][i], gradients[3 + step][i]));
      }
    }
  });
}

}  // namespace
}  // namespace remat::distributed
