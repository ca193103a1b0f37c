#include "remat/distributed/data_parallel.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>

#include "remat/base/error.h"
#include "remat/runtime/checkpoint.h"
#include "tests/distributed/error_text.h"
#include "tests/distributed/ranks.h"
#include "tests/distributed/reentrant.h"
#include "tests/distributed/training.h"

namespace remat::distributed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::autograd::backward;

at::Tensor weight(int rank = 0) {
  return (at::arange(4, at::kDouble).view({2, 2}) * 0.3 + rank)
      .requires_grad_();
}

at::Tensor x_of(ProcessGroup& group, int step = 0) {
  return input_of(group.rank(), step, {3, 2});
}

std::string error_of(const std::function<void()>& action) {
  return text_of<Error>(action);
}

TEST(DataParallel, StartsFromTheValuesOfRank0) {
  on_ranks([](ProcessGroup& group) {
    const at::Tensor w = weight(group.rank());
    const at::Tensor frozen = at::full({3}, group.rank(), at::kFloat);
    const at::Tensor buffer = at::full({1}, 5 + group.rank(), at::kLong);
    const DataParallel parallel(group, {w, frozen}, {buffer});
    EXPECT_TRUE(same_bits(w, weight()));
    EXPECT_TRUE(w.requires_grad());
    EXPECT_TRUE(at::equal(frozen, at::zeros({3})));
    EXPECT_EQ(buffer.item<int64_t>(), 5);
    EXPECT_EQ(parallel.parameters().size(), 1u);
  });
}

TEST(DataParallel, MisuseIsNamed) {
  on_ranks([](ProcessGroup& group) {
    const at::Tensor w = weight();
    EXPECT_THAT(error_of([&] { DataParallel(group, {w.detach()}); }),
                HasSubstr("[data_parallel] none of the 1 parameters requires "
                          "gradients"));
    EXPECT_THAT(error_of([&] { DataParallel(group, {w * 2}); }),
                HasSubstr("parameter Double[2, 2] is the result of an "
                          "operation; it must be a leaf"));
    DataParallelOptions options;
    options.bucket_bytes = 0;
    EXPECT_THAT(error_of([&] { DataParallel(group, {w}, {}, options); }),
                HasSubstr("bucket_bytes is 0"));

    DataParallel parallel(group, {w});
    EXPECT_THAT(error_of([&] { parallel.prepare_for_backward({w.sum()}); }),
                HasSubstr("prepare_for_backward without prepare_for_forward"));
    options = DataParallelOptions();
    options.static_graph = true;
    DataParallel fixed(group, {weight()}, {}, options);
    fixed.prepare_for_forward();
    EXPECT_THAT(error_of([&] { fixed.prepare_for_backward({}); }),
                HasSubstr("with static_graph it needs the outputs"));
  });
}

TEST(DataParallel, ModelsThatDifferAreAnErrorOnEveryRank) {
  on_ranks([](ProcessGroup& group) {
    const auto error = [&](std::vector<at::Tensor> parameters) {
      return error_of([&] { DataParallel(group, std::move(parameters)); });
    };
    const std::string of_this_rank =
        "the model of rank " + std::to_string(group.rank()) + ", ";
    std::vector<at::Tensor> parameters{weight()};
    if (group.rank() == 1) {
      parameters.push_back(weight());
    }
    EXPECT_THAT(error(parameters),
                AllOf(HasSubstr("[data_parallel] " + of_this_rank),
                      HasSubstr("build the same model on every rank")));
    parameters = {
        at::ones({2, 2 + group.rank()}, at::kDouble).requires_grad_()};
    EXPECT_THAT(error(parameters),
                AllOf(HasSubstr("[data_parallel] " + of_this_rank),
                      HasSubstr("build the same model on every rank")));
    // Nobody waits for anybody afterwards.
    const DataParallel parallel(group, {weight()});
  });
}

// trl#7245: the loss of the bare model: the ranks would drift apart.
TEST(DataParallel, AGradientThatIsNotReducedIsAnError) {
  on_ranks([](ProcessGroup& group) {
    const at::Tensor w = weight();
    DataParallel parallel(group, {w});
    const auto loss = [&] {
      return checkpoint([&](const at::Tensor& t) { return layer(w, t); },
                        x_of(group))
          .sum();
    };
    const auto unreduced = AllOf(
        HasSubstr("[data_parallel] a gradient of parameter 0, Double[2, 2], "
                  "arrived that no reduction takes: it would stay rank " +
                  std::to_string(group.rank()) + "'s own"),
        HasSubstr("Call prepare_for_forward"));
    EXPECT_THAT(error_of([&] { backward({loss()}); }), unreduced);

    parallel.prepare_for_forward();
    const at::Tensor twice = loss();
    parallel.prepare_for_backward({twice});
    backward({twice}, {}, /*retain_graph=*/true);
    EXPECT_TRUE(same_on_all_ranks(group, {w.grad()}));
    EXPECT_THAT(error_of([&] { backward({twice}); }), unreduced);

    // grad() is no matter of data parallel.
    torch::autograd::grad({loss()}, {w});
  });
}

TEST(DataParallel, AParameterWithoutGradientIsNamed) {
  on_ranks([](ProcessGroup& group) {
    const at::Tensor w = weight(), unused = weight();
    DataParallel parallel(group, {w, unused});
    parallel.prepare_for_forward();
    const at::Tensor loss = layer(w, x_of(group)).sum();
    parallel.prepare_for_backward({loss});
    backward({loss});
    EXPECT_THAT(error_of([&] { parallel.prepare_for_forward(); }),
                AllOf(HasSubstr("gave no gradient to parameters 1 (Double[2, "
                                "2])"),
                      HasSubstr("Set find_unused_parameters")));
  });
}

// Steps without a backward, and steps with gradients off, are no steps.
TEST(DataParallel, ForwardsAlone) {
  on_ranks([](ProcessGroup& group) {
    for (const bool static_graph : {false, true}) {
      const at::Tensor w = weight();
      DataParallelOptions options;
      options.static_graph = static_graph;
      DataParallel parallel(group, {w}, {}, options);
      for (int step = 0; step < 3; ++step) {
        for (const bool with_gradients : {false, true}) {
          const at::AutoGradMode mode(with_gradients);
          parallel.prepare_for_forward();
          parallel.prepare_for_backward({layer(w, x_of(group)).sum()});
        }
        w.mutable_grad() = at::Tensor();
        parallel.prepare_for_forward();
        const at::Tensor loss = layer(w, x_of(group)).sum();
        parallel.prepare_for_backward({loss});
        backward({loss});
        EXPECT_TRUE(same_on_all_ranks(group, {w.grad()}));
      }
    }
  });
}

// accelerate#3679, pytorch#143580: accumulation inside NoSync, then a step that
// is reduced. Also from the first step on, and with a static graph, which
// libtorch's own reducer miscounts.
TEST(DataParallel, NoSyncAddsUpWhatTheNextStepReduces) {
  on_ranks([](ProcessGroup& group) {
    constexpr int kSteps = 4, kBatches = 3;
    for (const int variant : {0, 1, 2}) {
      SCOPED_TRACE(variant);
      DataParallelOptions options;
      options.static_graph = variant == 1;
      options.find_unused_parameters = variant == 2;
      std::vector<at::Tensor> plain;
      for (const bool regions : {false, true}) {
        const at::Tensor w = weight(), head = weight();
        DataParallel parallel(group, {w, head}, {}, options);
        const auto loss_of = [&](int step, int batch) {
          const auto body = [&](const at::Tensor& t) {
            return layer(head, layer(w, t));
          };
          const at::Tensor x = x_of(group, step * kBatches + batch);
          return (regions ? checkpoint(body, x) : body(x)).pow(2).sum();
        };
        for (int step = 0; step < kSteps; ++step) {
          std::vector<at::Tensor> by_hand{at::zeros_like(w), at::zeros_like(w)};
          w.mutable_grad() = head.mutable_grad() = at::Tensor();
          for (int batch = 0; batch < kBatches; ++batch) {
            std::optional<NoSync> no_sync;
            if (batch + 1 < kBatches) {
              no_sync.emplace(parallel);
            }
            parallel.prepare_for_forward();
            const at::Tensor loss = loss_of(step, batch);
            parallel.prepare_for_backward({loss});
            backward({loss});
            EXPECT_EQ(same_on_all_ranks(group, {w.grad()}), !no_sync);
            const auto alone = torch::autograd::grad(
                {loss_of(step, batch)}, {w, head}, {}, {}, false, true);
            for (size_t i = 0; i < 2; ++i) {
              if (alone[i].defined()) {
                by_hand[i] += alone[i];
              }
            }
          }
          EXPECT_TRUE(same_on_all_ranks(group, {w.grad(), head.grad()}));
          for (const bool first : {true, false}) {
            const at::Tensor gradient = (first ? w : head).grad();
            at::Tensor mean = by_hand[first ? 0 : 1];
            group.all_reduce_sum(mean);
            EXPECT_TRUE(
                at::allclose(gradient, mean / group.size(), 1e-10, 1e-12));
            const auto index = static_cast<size_t>(2 * step + (first ? 0 : 1));
            if (!regions) {
              plain.push_back(gradient.clone());
            } else {
              EXPECT_TRUE(same_bits(plain[index], gradient));
            }
          }
        }
      }
    }
  });
}

// A part of the model that only the batches inside NoSync use: its sum is
// reduced, or, where this libtorch's reducer would lose it, refused.
TEST(DataParallel, APartUsedInsideNoSyncAlone) {
  on_ranks([](ProcessGroup& group) {
    const at::Tensor w = weight(), head = weight();
    DataParallelOptions options;
    options.find_unused_parameters = true;
    DataParallel parallel(group, {w, head}, {}, options);
    const auto run = [&](const at::Tensor& out) {
      parallel.prepare_for_backward({out});
      backward({out});
    };
    for (int step = 0; step < 2; ++step) {
      w.mutable_grad() = head.mutable_grad() = at::Tensor();
      {
        const NoSync no_sync(parallel);
        run(layer(head, layer(w, x_of(group, step))).sum());
      }
      parallel.prepare_for_forward();
      run(layer(w, x_of(group, step)).sum());
      EXPECT_TRUE(same_on_all_ranks(group, {w.grad()}));
      if (!same_on_all_ranks(group, {head.grad()})) {
        const auto refused =
            AllOf(HasSubstr("gave no gradient to parameters 1 (Double[2, 2]), "
                            "and NoSync had"));
        EXPECT_THAT(error_of([&] { parallel.prepare_for_forward(); }), refused);
        EXPECT_THAT(error_of([&] { NoSync{parallel}; }), refused);
        return;
      }
    }
    EXPECT_EQ(error_of([&] { parallel.prepare_for_forward(); }),
              "no such exception");
  });
}

// Case 1's wrong values: what a checkpoint that runs a backward inside backward
// does to the ranks. The comparison of the other tests sees it, and by default
// it is an error.
TEST(DataParallel, ReentrantCheckpointsAreFoundOut) {
  on_ranks([](ProcessGroup& group) {
    const auto matrix = [](at::ArrayRef<double> list) {
      return at::tensor(list, at::kDouble).view({-1, 2});
    };
    for (const bool refuse : {false, true}) {
      const at::Tensor w = matrix({1, 2, -1, 0.5}).requires_grad_();
      DataParallelOptions options;
      options.refuse_unreduced = refuse;
      DataParallel parallel(group, {w}, {}, options);
      const at::Tensor x =
          (group.rank() == 0 ? matrix({0.5, -1}) : matrix({1.5, 0.25}))
              .requires_grad_();
      const auto fn = [w](const at::Tensor& t) { return layer(w, t); };
      parallel.prepare_for_forward();
      const at::Tensor h =
          reentrant_checkpoint(fn, reentrant_checkpoint(fn, x));
      const at::Tensor loss = (h * h).sum();
      parallel.prepare_for_backward({loss});
      if (refuse) {
        EXPECT_THAT(error_of([&] { backward({loss}); }),
                    HasSubstr("arrived that no reduction takes"));
        continue;
      }
      backward({loss});
      EXPECT_FALSE(same_on_all_ranks(group, {w.grad()}));
      const at::Tensor known_wrong =
          group.rank() == 0
              ? matrix({-0.40359851618636444, 0.4947962816642492,
                        -0.465729779865379, -0.21884408340256156})
              : matrix({-0.3698676655493611, 0.343850520093875,
                        -1.0867359558597454, -0.2090054358203021});
      EXPECT_TRUE(at::allclose(w.grad(), known_wrong, 1e-10, 0)) << w.grad();
    }
  });
}

}  // namespace
}  // namespace remat::distributed
