// What checkpoint() promises: the plain run's gradients to the bit, counted
// recomputations, any kind of arguments, and errors that say what is wrong.
#include "remat/runtime/checkpoint.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <thread>

#include "tests/runtime/helpers.h"

namespace remat {
namespace {

using ::testing::HasSubstr;
using torch::autograd::grad;

at::Tensor leaf(at::IntArrayRef sizes) {
  return at::randn(sizes, at::kDouble).requires_grad_();
}

TEST(Checkpoint, GradientsEqualThePlainRun) {
  const at::Tensor x = leaf({5, 4}), w = leaf({4, 4});
  int runs = 0;
  const auto fn = [&](const at::Tensor& input) {
    ++runs;
    return at::tanh(at::mm(input, w)).sin();
  };
  const auto plain = grad({fn(x).sum()}, {x, w});
  runs = 0;
  const auto y = checkpoint(fn, x);
  EXPECT_EQ(runs, 1);
  const auto recomputed = grad({y.sum()}, {x, w});
  EXPECT_EQ(runs, 2);
  EXPECT_TRUE(at::equal(plain[0], recomputed[0]));
  EXPECT_TRUE(at::equal(plain[1], recomputed[1]));
}

TEST(Checkpoint, NothingSavedNothingRecomputed) {
  const at::Tensor x = leaf({3});
  int runs = 0;
  const auto y = checkpoint(
      [&](const at::Tensor& input) {
        ++runs;
        return input + 1;
      },
      x);
  grad({y.sum()}, {x});
  EXPECT_EQ(runs, 1);
}

TEST(Checkpoint, WithGradientsOffItIsAPlainCall) {
  const at::Tensor x = leaf({3});
  int depth = -1;
  const auto fn = [&](const at::Tensor& input) {
    depth = recompute_context().depth;
    return input.sin();
  };
  {
    const c10::NoGradGuard no_grad;
    EXPECT_FALSE(checkpoint(fn, x).requires_grad());
    EXPECT_EQ(depth, 0);
  }
  {
    const c10::InferenceMode inference;
    checkpoint(fn, at::ones({3}));
    EXPECT_EQ(depth, 0);
  }
  checkpoint(fn, x);
  EXPECT_EQ(depth, 1);
}

struct Pair {
  at::Tensor left;
  at::Tensor right;
  std::string note;
  template <class Visitor>
  void visit_tensors(Visitor&& visit) {
    visit(left);
    visit(right);
  }
};

TEST(Checkpoint, TakesAndReturnsStructuresOfTensors) {
  const at::Tensor a = leaf({3}), b = leaf({3}), c = leaf({3});
  const auto fn = [](const Pair& pair, const std::vector<at::Tensor>& more,
                     const std::map<std::string, at::Tensor>& named,
                     double factor, std::optional<at::Tensor> none) {
    EXPECT_EQ(pair.note, "kept");
    EXPECT_FALSE(none.has_value());
    return std::make_tuple(pair.left.sin() * pair.right.exp(),
                           std::vector<at::Tensor>{more.at(0).cos() * factor},
                           Pair{named.at("x").tan(), pair.right.sin(), "out"});
  };
  const auto run = [&](auto&& call) {
    const auto [product, list, pair] =
        call(Pair{a, b, "kept"}, std::vector<at::Tensor>{c},
             std::map<std::string, at::Tensor>{{"x", a}}, 2.5,
             std::optional<at::Tensor>());
    EXPECT_EQ(pair.note, "out");
    return grad(
        {product.sum() + list[0].sum() + pair.left.sum() + pair.right.sum()},
        {a, b, c});
  };
  const auto plain = run(fn);
  const auto recomputed = run(
      [&](auto&&... inputs) { return checkpoint(fn, std::move(inputs)...); });
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(at::equal(plain[i], recomputed[i])) << i;
  }
}

// Case 26 of the field.
TEST(Checkpoint, NestedRegionsRecomputeInnerInOuter) {
  const at::Tensor x = at::tensor({0.3, 1.1}, at::kDouble).requires_grad_();
  int outer = 0, inner = 0;
  const auto y = checkpoint(
      [&](const at::Tensor& t) {
        ++outer;
        EXPECT_EQ(recompute_context().depth, 1);
        return at::tanh(checkpoint(
            [&](const at::Tensor& u) {
              ++inner;
              EXPECT_EQ(recompute_context().depth, 2);
              return at::exp(at::sin(u));
            },
            at::cos(t)));
      },
      x);
  const at::Tensor out = y.sum();
  const auto dx = grad({out}, {x})[0];
  EXPECT_NEAR(out.item<double>(), 1.8923381039972935, 1e-10);
  EXPECT_NEAR(dx[0].item<double>(), -0.016370578949805998, 1e-10);
  EXPECT_NEAR(dx[1].item<double>(), -0.20489315756657625, 1e-10);
  EXPECT_EQ(outer, 2);
  EXPECT_LE(inner, 3);
}

TEST(Checkpoint, NestsToAnyDepth) {
  const at::Tensor x = at::tensor({0.1}, at::kDouble).requires_grad_();
  const std::function<at::Tensor(const at::Tensor&, int)> nest =
      [&](const at::Tensor& t, int levels) -> at::Tensor {
    if (levels == 0) {
      return t;
    }
    return checkpoint([&nest](const at::Tensor& u,
                              int deeper) { return at::sin(nest(u, deeper)); },
                      t, levels - 1);
  };
  const at::Tensor y = at::cos(nest(x, 5));
  EXPECT_NEAR(y.item<double>(), 0.995086157231424, 1e-12);
  EXPECT_NEAR(grad({y}, {x})[0].item<double>(), -0.0965801769854481, 1e-12);
}

TEST(Checkpoint, DoubleBackward) {
  const at::Tensor x = leaf({4});
  const auto fn = [](const at::Tensor& t) {
    return (t.sin() * t.exp()).pow(3);
  };
  const auto second = [&](const at::Tensor& y) {
    const auto first = grad({y.sum()}, {x}, {}, {}, true);
    return grad({first[0].pow(2).sum()}, {x})[0];
  };
  EXPECT_TRUE(at::equal(second(fn(x)), second(checkpoint(fn, x))));
}

TEST(Checkpoint, RetainedGraphRecomputesOnceABackward) {
  const at::Tensor x = leaf({4});
  int runs = 0;
  const at::Tensor y = checkpoint(
                           [&](const at::Tensor& t) {
                             ++runs;
                             return t.sin().exp().tanh();
                           },
                           x)
                           .sum();
  const auto first = grad({y}, {x}, {}, true);
  EXPECT_EQ(runs, 2);
  const auto second = grad({y}, {x}, {}, true);
  EXPECT_EQ(runs, 3);
  EXPECT_TRUE(at::equal(first[0], second[0]));
  grad({y}, {x});
  EXPECT_THROW(grad({y}, {x}), c10::Error);
}

TEST(Checkpoint, EarlyStopEndsAtTheLastValueNeeded) {
  const at::Tensor x = leaf({4});
  for (const bool early_stop : {true, false}) {
    int starts = 0, ends = 0;
    const auto y = checkpoint(
        CheckpointOptions().early_stop(early_stop),
        [&](const at::Tensor& t) {
          ++starts;
          const at::Tensor result = t.sin().exp() + 1;
          ++ends;
          return result;
        },
        x);
    grad({y.sum()}, {x});
    EXPECT_EQ(starts, 2);
    EXPECT_EQ(ends, early_stop ? 1 : 2);
  }
}

TEST(Checkpoint, BackwardInsideARegion) {
  const at::Tensor x = leaf({4});
  for (const bool early_stop : {true, false}) {
    const auto fn = [](const at::Tensor& t) {
      const at::Tensor y = t.sin().exp();
      const auto slope = grad({y.sum()}, {t}, {}, true, true)[0];
      return (y * slope).tanh();
    };
    const auto plain = grad({fn(x).sum()}, {x})[0];
    const auto y =
        checkpoint(CheckpointOptions().early_stop(early_stop), fn, x);
    EXPECT_TRUE(at::equal(plain, grad({y.sum()}, {x})[0]));
  }
}

class CountedError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

TEST(Checkpoint, ErrorsPassWholeAndLeaveTheRegionUsable) {
  const at::Tensor x = leaf({4});
  EXPECT_THROW(checkpoint([](const at::Tensor&)
                              -> at::Tensor { throw CountedError("forward"); },
                          x),
               CountedError);
  bool broken = false;
  const auto fn = [&](const at::Tensor& t) {
    const at::Tensor y = t.sin();
    if (broken) {
      throw CountedError("backward");
    }
    return y.exp();
  };
  const at::Tensor y = checkpoint(fn, x).sum();
  broken = true;
  EXPECT_THROW(grad({y}, {x}, {}, true), CountedError);
  EXPECT_FALSE(is_recomputing());
  broken = false;
  EXPECT_TRUE(at::equal(grad({y}, {x})[0], grad({fn(x).sum()}, {x})[0]));
}

TEST(Checkpoint, OtherShapesAreListed) {
  const at::Tensor x = leaf({4, 4});
  bool second = false;
  const at::Tensor y = checkpoint(
      CheckpointOptions().name("layer 3"),
      [&](const at::Tensor& t) {
        const at::Tensor part = second ? t.narrow(0, 0, 2) : t;
        return part.sin().sum() + part.exp().sum();
      },
      x);
  second = true;
  const std::string error = error_of([&] { grad({y}, {x}); });
  EXPECT_THAT(error, HasSubstr("the region \"layer 3\""));
  EXPECT_THAT(error, HasSubstr("tensor 0: Double[4, 4] on cpu in forward, "
                               "Double[2, 4] on cpu recomputed"));
  EXPECT_THAT(error, HasSubstr("tensor 1: "));
}

TEST(Checkpoint, OtherCountsAreErrors) {
  const at::Tensor x = leaf({4});
  bool second = false;
  const auto region = [&](bool early_stop) {
    second = false;
    const at::Tensor y = checkpoint(
                             CheckpointOptions().early_stop(early_stop),
                             [&](const at::Tensor& t) {
                               at::Tensor z = t.sin().exp();
                               return second == early_stop ? z : z.tanh();
                             },
                             x)
                             .sum();
    second = true;
    return error_of([&] { grad({y}, {x}); });
  };
  EXPECT_THAT(region(true), HasSubstr("saved 2 tensors when it was "
                                      "recomputed, 3 in forward"));
  EXPECT_THAT(region(false), HasSubstr("saved 3 tensors when it was "
                                       "recomputed, only 2 in forward"));
}

TEST(Checkpoint, InputsChangedInPlaceAreErrors) {
  const at::Tensor x = leaf({4});
  const at::Tensor input = x * 2, captured = at::ones({4}, at::kDouble);
  const at::Tensor y =
      checkpoint([](const at::Tensor& t) { return t.sin().exp(); }, input)
          .sum();
  input.detach().add_(1);
  EXPECT_THROW(grad({y}, {x}), c10::Error);

  const at::Tensor z =
      checkpoint(
          [captured](const at::Tensor& t) { return (t * captured).exp(); }, x)
          .sum();
  captured.add_(1);
  EXPECT_THAT(error_of([&] { grad({z}, {x}); }),
              HasSubstr("comes from outside the region and was changed"));
}

TEST(Checkpoint, InputsChangedByTheRegionAreErrorsAndLeakNothing) {
  const auto alive = std::make_shared<int>(0);
  const at::Tensor x = leaf({4});
  const auto run = [&] {
    const at::Tensor h = x * 2;
    checkpoint(
        CheckpointOptions().name("first"),
        [alive](const at::Tensor& t) {
          at::Tensor same = t;
          return same.relu_().sin();
        },
        h);
  };
  EXPECT_THAT(error_of(run),
              HasSubstr("the region \"first\" changed its input 0, Double[4], "
                        "in place (version 0 before, 1 after)"));
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(Checkpoint, ANoexceptFunctionIsRunToItsEnd) {
  const at::Tensor x = leaf({4});
  const auto fn = [](const at::Tensor& t) noexcept {
    return t.sin().exp() + 1;
  };
  EXPECT_TRUE(at::equal(grad({fn(x).sum()}, {x})[0],
                        grad({checkpoint(fn, x).sum()}, {x})[0]));
}

TEST(Checkpoint, AReturnedReferenceBecomesAValue) {
  const at::Tensor x = leaf({4});
  const auto fn = [](const at::Tensor& t) -> const at::Tensor& { return t; };
  const c10::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(checkpoint(fn, x), x));
}

TEST(Checkpoint, RecomputingIsTold) {
  const at::Tensor x = leaf({4});
  std::vector<bool> told;
  const auto y = checkpoint(
      [&](const at::Tensor& t) {
        told.push_back(is_recomputing());
        return t.sin().exp();
      },
      x);
  grad({y.sum()}, {x});
  EXPECT_EQ(told, (std::vector<bool>{false, true}));
}

TEST(Checkpoint, RegionsDieWithTheirGraph) {
  const auto alive = std::make_shared<int>(0);
  const at::Tensor x = leaf({4});
  const auto region = [&] {
    return checkpoint(
               [alive](const at::Tensor& t) { return t.sin().exp().tanh(); }, x)
        .sum();
  };
  {
    const at::Tensor unused = region();
    EXPECT_GT(alive.use_count(), 1);
  }
  EXPECT_EQ(alive.use_count(), 1) << "dropped without backward";
  const at::Tensor y = region();
  grad({y}, {x});
  EXPECT_EQ(alive.use_count(), 1) << "after backward";
}

// A region is recomputed when a gradient for it is there, not before, and once.
TEST(Checkpoint, RecomputesInTheOrderOfBackward) {
  const at::Tensor x = leaf({4});
  std::vector<std::string> events;
  at::Tensor y = x;
  for (const char* const name : {"a", "b", "c"}) {
    y = checkpoint(
        CheckpointOptions().on_recompute(
            [&events, name] {
              events.push_back(std::string("recompute ") + name);
            },
            nullptr),
        [](const at::Tensor& t) { return t.sin().exp() * t.cos(); }, y);
    y.register_hook([&events, name](const at::Tensor&) {
      events.push_back(std::string("gradient ") + name);
    });
  }
  grad({y.sum()}, {x});
  EXPECT_THAT(events, ::testing::ElementsAre("gradient c", "recompute c",
                                             "gradient b", "recompute b",
                                             "gradient a", "recompute a"));
}

TEST(Checkpoint, BackwardsFromSeveralThreads) {
  const at::Tensor x = leaf({16});
  const at::Tensor y =
      checkpoint([](const at::Tensor& t) { return t.sin().exp().tanh().cos(); },
                 x)
          .sum();
  const auto expected = grad({y}, {x}, {}, true)[0];
  std::vector<at::Tensor> results(4);
  std::vector<std::thread> threads;
  for (at::Tensor& result : results) {
    threads.emplace_back([&] { result = grad({y}, {x}, {}, true)[0]; });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const at::Tensor& result : results) {
    EXPECT_TRUE(at::equal(result, expected));
  }
}

}  // namespace
}  // namespace remat
