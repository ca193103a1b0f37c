// What policies keep, what is then not run again, and what it costs.
#include "remat/runtime/policy.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "remat/base/error.h"
#include "remat/memory/meter.h"
#include "remat/runtime/checkpoint.h"
#include "remat/runtime/saved_tensor_hooks.h"

namespace remat {
namespace {

using ::testing::HasSubstr;
using torch::autograd::grad;

at::Tensor leaf(at::IntArrayRef sizes) {
  return at::randn(sizes, at::kDouble).requires_grad_();
}

constexpr int64_t kWidth = 32;
constexpr int64_t kProduct = kWidth * kWidth * 8;

at::Tensor two_products(const at::Tensor& t, const at::Tensor& w) {
  const at::Tensor scores = keep("scores", at::mm(t.sin(), w));
  return at::mm(scores.exp().tanh(), w).cos();
}

struct Problem {
  at::Tensor x = leaf({kWidth, kWidth});
  at::Tensor w =
      at::randn({kWidth, kWidth}, at::kDouble).mul_(0.1).requires_grad_();
  // Bytes held besides x, w and the output, with this policy.
  int64_t held(const Policy& policy) const {
    const MemoryMeter meter;
    const at::Tensor y = run(policy);
    return meter.live_bytes() - kProduct;
  }
  at::Tensor run(const Policy& policy) const {
    return checkpoint(
        CheckpointOptions().policy(policy).preserve_rng_state(false),
        [w = w](const at::Tensor& t) { return two_products(t, w); }, x);
  }
  std::vector<at::Tensor> gradients(const at::Tensor& y) const {
    return grad({y.sum()}, {x, w});
  }
  void expect_plain(const Policy& policy) const {
    const auto plain = gradients(two_products(x, w));
    const auto kept = gradients(run(policy));
    EXPECT_TRUE(at::equal(plain[0], kept[0]));
    EXPECT_TRUE(at::equal(plain[1], kept[1]));
  }
};

TEST(Policy, KeepsWhatItSaysAndNotMore) {
  const Problem problem;
  EXPECT_EQ(problem.held(policy::nothing()), 0);
  EXPECT_EQ(problem.held(policy::matmuls()), 2 * kProduct);
  EXPECT_EQ(problem.held(policy::operators({"aten::mm"})), 2 * kProduct);
  EXPECT_EQ(problem.held(policy::operators({"aten::tanh"})), kProduct);
  EXPECT_EQ(problem.held(policy::names({"scores"})), kProduct);
  EXPECT_EQ(problem.held(policy::names({"other"})), 0);
  EXPECT_EQ(problem.held(policy::either(policy::names({"scores"}),
                                        policy::operators({"aten::exp"}))),
            2 * kProduct);
  // sin, mm, exp, tanh, mm; cos is the output itself.
  EXPECT_EQ(problem.held(policy::everything()), 5 * kProduct);
}

TEST(Policy, GradientsEqualThePlainOnes) {
  const Problem problem;
  problem.expect_plain(policy::nothing());
  problem.expect_plain(policy::matmuls());
  problem.expect_plain(policy::names({"scores"}));
  problem.expect_plain(policy::everything());
  problem.expect_plain(policy::operators({"aten::exp", "aten::sin"}));
  int asked = 0;
  problem.expect_plain({.keeps =
                            [&asked](const OperatorCall& call) {
                              EXPECT_GT(call.output_bytes, 0);
                              return ++asked % 2 == 0;
                            },
                        .names = {}});
  EXPECT_EQ(asked, 6);
}

// The products of the recomputation, seen through the kernels' allocations.
TEST(Policy, KeptResultsAreNotComputedAgain) {
  const Problem problem;
  const auto allocations = [&problem](const Policy& policy) {
    const at::Tensor y = problem.run(policy).sum();
    const MemoryMeter meter;
    grad({y}, {problem.x, problem.w});
    return meter.allocations();
  };
  const int64_t none = allocations(policy::nothing());
  EXPECT_EQ(none - allocations(policy::operators({"aten::mm"})), 2);
  EXPECT_EQ(none - allocations(policy::names({"scores"})), 1);
  EXPECT_GT(none - allocations(policy::everything()), 3);
}

TEST(Policy, SeveralBackwardsAndDoubleBackward) {
  const Problem problem;
  const at::Tensor y = problem.run(policy::matmuls()).sum();
  const auto first = grad({y}, {problem.x}, {}, true);
  const auto second = grad({y}, {problem.x}, {}, true);
  EXPECT_TRUE(at::equal(first[0], second[0]));
  const auto curvature = [&](const at::Tensor& loss) {
    const at::Tensor slope = grad({loss.sum()}, {problem.x}, {}, true, true)[0];
    return grad({slope.pow(2).sum()}, {problem.w})[0];
  };
  EXPECT_TRUE(at::equal(curvature(problem.run(policy::matmuls())),
                        curvature(two_products(problem.x, problem.w))));
}

// A dropout's mask is drawn again, so that what is drawn after it is the same.
TEST(Policy, RandomOperatorsAreRunAgain) {
  const at::Tensor x = leaf({64});
  const auto fn = [](const at::Tensor& t) {
    return at::dropout(at::dropout(t.exp(), 0.5, true).sin(), 0.5, true).cos();
  };
  at::manual_seed(4);
  const at::Tensor plain = grad({fn(x).sum()}, {x})[0];
  at::manual_seed(4);
  const at::Tensor y =
      checkpoint(CheckpointOptions().policy(policy::everything()), fn, x);
  EXPECT_TRUE(at::equal(grad({y.sum()}, {x})[0], plain));
}

// A result that the region changes in place afterwards is computed again.
TEST(Policy, ResultsChangedInPlaceAreRunAgain) {
  const at::Tensor x = leaf({8, 8}), w = leaf({8, 8});
  const auto fn = [w](const at::Tensor& t) {
    return at::mm(t, w).relu_().mul(2).exp();
  };
  const at::Tensor plain = grad({fn(x).sum()}, {x})[0];
  for (const Policy& policy : {policy::matmuls(), policy::everything()}) {
    const at::Tensor y = checkpoint(CheckpointOptions().policy(policy), fn, x);
    EXPECT_TRUE(at::equal(grad({y.sum()}, {x}, {}, true)[0], plain));
    EXPECT_TRUE(at::equal(grad({y.sum()}, {x})[0], plain));
  }
}

TEST(Policy, ViewsAndSeveralOutputs) {
  const at::Tensor x = leaf({6, 8});
  const auto fn = [](const at::Tensor& t) {
    const auto [values, indices] = t.sin().max(1);
    const at::Tensor normed =
        at::layer_norm(t.exp(), {8}, at::ones({8}, at::kDouble));
    return normed.t().transpose(0, 1).tanh().sum(1) * values;
  };
  const at::Tensor plain = grad({fn(x).sum()}, {x})[0];
  const at::Tensor y =
      checkpoint(CheckpointOptions().policy(policy::everything()), fn, x);
  EXPECT_TRUE(at::equal(grad({y.sum()}, {x})[0], plain));
}

// A kernel of the user's adds to memory that it asked for, unseen by any
// operator.
TEST(Policy, NewMemoryIsNewAgain) {
  const at::Tensor x = leaf({2});
  const auto fn = [](const at::Tensor& t) {
    const at::Tensor factor = at::zeros({2}, at::kDouble);
    const at::Tensor like = at::zeros_like(factor);
    factor.data_ptr<double>()[0] += 3;
    like.data_ptr<double>()[1] += 2;
    return ((factor + like) * t).exp();
  };
  const at::Tensor plain = grad({fn(x).sum()}, {x})[0];
  // Alone: everything() would keep the sum, and hide what the memory holds.
  const at::Tensor y = checkpoint(CheckpointOptions().policy(policy::operators(
                                      {"aten::zeros", "aten::zeros_like"})),
                                  fn, x);
  EXPECT_TRUE(at::equal(grad({y.sum()}, {x}, {}, true)[0], plain));
  EXPECT_TRUE(at::equal(grad({y.sum()}, {x})[0], plain));
}

// item() returns no tensor: nothing to keep.
TEST(Policy, NumbersAreReadAgain) {
  const at::Tensor x = leaf({6});
  const auto fn = [](const at::Tensor& t) {
    const double scale = t.detach().abs().max().item<double>();
    return (t.sin() * scale).exp();
  };
  const at::Tensor plain = grad({fn(x).sum()}, {x})[0];
  const at::Tensor y =
      checkpoint(CheckpointOptions().policy(policy::everything()), fn, x);
  EXPECT_TRUE(at::equal(grad({y.sum()}, {x})[0], plain));
}

TEST(Policy, RegionsInsideHaveTheirOwn) {
  const Problem problem;
  const auto nested = [&](const Policy& outer, const Policy& inner) {
    return problem.gradients(checkpoint(
        CheckpointOptions().policy(outer),
        [&problem, inner](const at::Tensor& t) {
          return checkpoint(
              CheckpointOptions().policy(inner),
              [w = problem.w](const at::Tensor& u) {
                return two_products(u, w);
              },
              two_products(t, problem.w));
        },
        problem.x));
  };
  const auto plain = problem.gradients(
      two_products(two_products(problem.x, problem.w), problem.w));
  for (const Policy& outer : {policy::nothing(), policy::matmuls()}) {
    for (const Policy& inner : {policy::nothing(), policy::everything()}) {
      const auto gradients = nested(outer, inner);
      EXPECT_TRUE(at::equal(gradients[0], plain[0]));
      EXPECT_TRUE(at::equal(gradients[1], plain[1]));
    }
  }
}

// Kept results go through the hooks around the region: offloading composes.
TEST(Policy, KeptResultsPassTheHooksAround) {
  const Problem problem;
  int packs = 0;
  at::Tensor y;
  {
    const SavedTensorHooks hooks(
        [&packs](const at::Tensor& t) {
          ++packs;
          return t.clone();
        },
        [](const at::Tensor& packed) { return packed; });
    y = problem.run(policy::matmuls());
  }
  EXPECT_EQ(packs, 3) << "the input and two products";
  const auto plain = problem.gradients(two_products(problem.x, problem.w));
  EXPECT_TRUE(at::equal(problem.gradients(y)[0], plain[0]));
}

TEST(Policy, NothingLeaks) {
  const auto alive = std::make_shared<int>(0);
  const Problem problem;
  for (const bool backward : {true, false}) {
    at::Tensor y = checkpoint(
        CheckpointOptions().policy(policy::everything()),
        [alive, w = problem.w](const at::Tensor& t) {
          return two_products(t, w);
        },
        problem.x);
    if (backward) {
      problem.gradients(y);
      EXPECT_EQ(alive.use_count(), 1);
    }
    y.reset();
    EXPECT_EQ(alive.use_count(), 1);
  }
}

TEST(Policy, MisuseIsNamed) {
  try {
    policy::operators({"aten::mm", "aten::nn"});
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("there is no operator aten::nn;"));
  }
  EXPECT_THROW(policy::operators({"aten::sum.nothing"}), UsageError);
  EXPECT_NO_THROW(policy::operators({"aten::sum.dim_IntList"}));

  const Problem problem;
  const at::Tensor y = checkpoint(
      CheckpointOptions().policy(policy::matmuls()).name("attention"),
      [w = problem.w](const at::Tensor& t) {
        return (is_recomputing() ? t + w : at::mm(t, w)).exp();
      },
      problem.x);
  try {
    grad({y.sum()}, {problem.x});
    ADD_FAILURE();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("the region \"attention\" ran aten::add.Tensor as "
                          "its operator 0 when it was recomputed; in forward "
                          "that was aten::mm"));
  }
}

TEST(Keep, DoesNothingElsewhere) {
  const at::Tensor x = leaf({4});
  EXPECT_TRUE(keep("x", x).is_same(x));
  EXPECT_NO_THROW(
      checkpoint([](const at::Tensor& t) { return keep("t", t); }, x));
}

// Integers have no graph, and what is a view of them has its metadata already.
TEST(Policy, IntegersAndTheirViews) {
  const at::Tensor x = leaf({8});
  const auto fn = [](const at::Tensor& t) {
    const at::Tensor order = t.detach().argsort().view({2, 4}).t();
    return t.index_select(0, order.reshape({-1})).sin() * order.flatten();
  };
  const at::Tensor y =
      checkpoint(CheckpointOptions().policy(policy::everything()), fn, x);
  EXPECT_TRUE(at::equal(grad({y.sum()}, {x})[0], grad({fn(x).sum()}, {x})[0]));
}

}  // namespace
}  // namespace remat
