#include "remat/runtime/dropout.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "remat/base/error.h"
#include "remat/kernels/dropout.h"
#include "remat/runtime/checkpoint.h"

namespace remat {
namespace {

using torch::autograd::grad;

TEST(StatelessDropout, IsAFunctionOfSeedAndElement) {
  const at::Tensor x = at::randn({37, 11}, at::kDouble).requires_grad_();
  const at::Tensor mask = kernels::dropout_mask_reference({37, 11}, 0.25, 99);
  const at::Tensor y = stateless_dropout(x, 0.25, 99);
  const at::Tensor scaled = mask.to(at::kDouble) * (1 / 0.75);
  EXPECT_TRUE(at::equal(y, x * scaled));
  const auto dx = grad({(y * y).sum()}, {x}, {}, {}, true)[0];
  EXPECT_TRUE(at::allclose(dx, 2 * x * scaled * scaled));
  const auto second = grad({dx.sum()}, {x})[0];
  EXPECT_TRUE(at::allclose(second, 2 * scaled * scaled));
  EXPECT_FALSE(at::equal(y, stateless_dropout(x, 0.25, 100)));
}

TEST(StatelessDropout, Edges) {
  const at::Tensor x = at::ones({3});
  EXPECT_TRUE(stateless_dropout(x, 0.0, 1).is_same(x));
  EXPECT_TRUE(at::equal(stateless_dropout(x, 1.0, 1), at::zeros({3})));
  EXPECT_THROW(stateless_dropout(x, 1.5, 1), UsageError);
  EXPECT_THROW(stateless_dropout(x, std::nan(""), 1), UsageError);
  EXPECT_THROW(stateless_dropout(at::ones({3}, at::kLong), 0.5, 1), UsageError);
  EXPECT_THROW(Dropout(-0.1), UsageError);
}

TEST(Dropout, ManualSeedRepeatsIt) {
  const Dropout dropout(0.5);
  const at::Tensor x = at::ones({100});
  at::manual_seed(3);
  const at::Tensor first = dropout(x), second = dropout(x);
  EXPECT_FALSE(at::equal(first, second));
  at::manual_seed(3);
  EXPECT_TRUE(at::equal(first, dropout(x)));
}

TEST(Dropout, EvaluationIsTheIdentityAndDrawsNothing) {
  Dropout dropout(0.5);
  dropout.eval();
  const at::Tensor x = at::ones({4});
  at::manual_seed(3);
  EXPECT_TRUE(dropout(x).is_same(x));
  const at::Tensor next = at::rand({1});
  at::manual_seed(3);
  EXPECT_TRUE(at::equal(next, at::rand({1})));
}

TEST(Dropout, ASeedScopeFixesTheMasksWhateverRanBefore) {
  const Dropout numbered(0.5), given(0.5, 17);
  const at::Tensor x = at::ones({100});
  const auto run = [&] {
    const SeedScope scope(5);
    return std::vector<at::Tensor>{numbered(x), numbered(x), given(x)};
  };
  const auto first = run();
  at::rand({3});
  const auto second = run();
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(at::equal(first[i], second[i])) << i;
    EXPECT_FALSE(at::equal(first[i], first[(i + 1) % 3])) << i;
  }
}

// The same masks whether a layer stands in a region, in a region in a region
// or in none: with ATen's generator, and in a SeedScope.
TEST(Dropout, GroupingIntoRegionsDoesNotChangeMasks) {
  const Dropout dropout(0.5);
  const auto body = [&](const at::Tensor& t) {
    return dropout(dropout(t).exp()).sin();
  };
  for (const bool scoped : {false, true}) {
    std::vector<at::Tensor> gradients;
    for (int nesting = 0; nesting < 3; ++nesting) {
      at::manual_seed(11);
      std::optional<SeedScope> scope;
      if (scoped) {
        scope.emplace(77);
      }
      const at::Tensor x = at::ones({64}, at::kDouble).requires_grad_();
      at::Tensor y = dropout(x);
      y = nesting == 0   ? body(y)
          : nesting == 1 ? checkpoint(body, y)
                         : checkpoint(
                               [&](const at::Tensor& t) {
                                 return checkpoint(body, t.exp().log());
                               },
                               y);
      y = dropout(y);
      if (nesting == 2) {
        // exp().log() rounds: compare the masks only.
        gradients.push_back((grad({y.sum()}, {x})[0] != 0).to(at::kDouble));
      } else {
        gradients.push_back(grad({y.sum()}, {x})[0]);
      }
    }
    EXPECT_TRUE(at::equal(gradients[0], gradients[1]));
    EXPECT_TRUE(at::equal((gradients[0] != 0).to(at::kDouble), gradients[2]));
  }
}

TEST(Dropout, ARegionsSeedHoldsWithGradientsOffToo) {
  const Dropout dropout(0.5);
  const at::Tensor x = at::ones({64}).requires_grad_();
  const auto options = CheckpointOptions().seed(7);
  const auto body = [&](const at::Tensor& t) { return dropout(t); };
  const at::Tensor with = checkpoint(options, body, x);
  const c10::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(with, checkpoint(options, body, x)));
}

TEST(Dropout, IsReplayedWithoutAtensGenerators) {
  const Dropout dropout(0.5);
  const at::Tensor x = at::ones({64}, at::kDouble).requires_grad_();
  for (const auto& options :
       {CheckpointOptions().preserve_rng_state(false),
        CheckpointOptions().preserve_rng_state(false).seed(4),
        CheckpointOptions().seed(4)}) {
    std::vector<at::Tensor> outputs;
    const auto y = checkpoint(
        options,
        [&](const at::Tensor& t) {
          outputs.push_back(dropout(t).detach());
          return dropout(t).exp();
        },
        x);
    grad({y.sum()}, {x});
    ASSERT_EQ(outputs.size(), 2u);
    EXPECT_TRUE(at::equal(outputs[0], outputs[1]));
  }
}

}  // namespace
}  // namespace remat
