#include "remat/kernels/block_sparse_attention.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "remat/base/error.h"
#include "remat/kernels/cpu_features.h"
#include "tests/kernels/attention_cases.h"

namespace remat::kernels {
namespace {

using ::testing::HasSubstr;
using torch::autograd::grad;
using Tensors = std::vector<at::Tensor>;

at::Tensor kernel(const AttentionCase& c) {
  return block_sparse_attention(c.query, c.key, c.value, c.layout, c.options);
}
at::Tensor aten(const AttentionCase& c) {
  return block_sparse_attention_aten(c.query, c.key, c.value, *c.layout,
                                     c.options);
}
at::Tensor simulated(const AttentionCase& c) {
  return block_sparse_attention_simulated(c.query, c.key, c.value, *c.layout,
                                          c.options);
}

// The output, then the gradients of query, key and value.
Tensors run(const AttentionCase& c,
            at::Tensor (*attention)(const AttentionCase&)) {
  const at::Tensor output = attention(c);
  Tensors results = grad({output}, {c.query, c.key, c.value}, {c.gradient});
  results.insert(results.begin(), output.detach());
  return results;
}

class BlockSparseAttention : public ::testing::Test {
 protected:
  ~BlockSparseAttention() override {
    at::set_num_threads(threads_);
    allow_avx2(true);
  }
  int threads_ = at::get_num_threads();
};

TEST_F(BlockSparseAttention, AgreesWithItsTwinsOnRandomProblems) {
  rc::check([] {
    AttentionShape shape;
    shape.batch = *rc::gen::inRange(1, 4);
    shape.heads = *rc::gen::inRange(1, 4);
    shape.head_dim = *rc::gen::inRange(1, 40);
    shape.block_size = *rc::gen::inRange(1, 40);
    shape.length = *rc::gen::inRange(1, 200);
    const bool masked = *rc::gen::arbitrary<bool>();
    allow_avx2(*rc::gen::arbitrary<bool>());
    const auto c = random_case(shape, *rc::gen::arbitrary<uint32_t>(),
                               at::kDouble, masked);
    const Tensors fast = run(c, kernel);
    const Tensors gathered = run(c, aten);
    const Tensors whole = run(c, simulated);
    for (size_t i = 0; i < fast.size(); ++i) {
      RC_ASSERT(fast[i].is_contiguous());
      RC_ASSERT(largest_difference(gathered[i], whole[i]) < 1e-10);
      RC_ASSERT(largest_difference(fast[i], whole[i]) < 1e-10);
    }
  });
}

TEST_F(BlockSparseAttention, FloatAgreesWithDouble) {
  for (const bool avx2 : {false, true}) {
    for (const int64_t block_size : {16, 64, 100}) {
      allow_avx2(avx2);
      AttentionShape shape{2, 3, 64, block_size, 520};
      const Tensors wanted =
          run(random_case(shape, 5, at::kDouble, true), simulated);
      const Tensors found =
          run(random_case(shape, 5, at::kFloat, true), kernel);
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].scalar_type(), at::kFloat);
        const double size = wanted[i].abs().max().item<double>();
        EXPECT_LT(largest_difference(found[i], wanted[i]), 1e-5 * size)
            << "block size " << block_size << ", result " << i;
      }
    }
  }
}

TEST_F(BlockSparseAttention, InstructionSetsAgree) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const auto c = random_case({2, 2, 33, 16, 250}, 6, type, true);
    const Tensors best = run(c, kernel);
    allow_avx2(false);
    EXPECT_FALSE(uses_avx2());
    const Tensors baseline = run(c, kernel);
    allow_avx2(true);
    for (size_t i = 0; i < best.size(); ++i) {
      EXPECT_LT(largest_difference(best[i], baseline[i]),
                type == at::kFloat ? 2e-5 : 1e-13);
    }
  }
}

// One head on several threads takes the path of two passes, many heads that of
// one: the bits must not tell.
TEST_F(BlockSparseAttention, ThreadsDoNotChangeABit) {
  for (const int64_t heads : {1, 2, 5}) {
    for (const int64_t block_size : {5, 16, 96}) {
      for (const auto type : {at::kFloat, at::kDouble}) {
        const auto c =
            random_case({1, heads, 20, block_size, 371}, 7, type, true);
        at::set_num_threads(1);
        const Tensors one = run(c, kernel);
        for (const int threads : {2, 3, 8}) {
          at::set_num_threads(threads);
          const Tensors more = run(c, kernel);
          for (size_t i = 0; i < one.size(); ++i) {
            EXPECT_TRUE(at::equal(one[i], more[i]))
                << heads << " heads, blocks of " << block_size << ", "
                << threads << " threads, result " << i;
          }
        }
      }
    }
  }
}

TEST_F(BlockSparseAttention, AnyStrides) {
  auto c = random_case({2, 3, 8, 8, 30}, 8);
  const Tensors wanted = run(c, kernel);
  const auto restride = [](const at::Tensor& tensor, at::IntArrayRef order,
                           at::IntArrayRef back) {
    return tensor.detach().permute(order).contiguous().permute(back);
  };
  c.query = restride(c.query, {3, 1, 0, 2}, {2, 1, 3, 0}).requires_grad_();
  c.key = restride(c.key, {0, 2, 3, 1}, {0, 3, 1, 2}).requires_grad_();
  c.value = restride(c.value, {2, 0, 1, 3}, {1, 2, 0, 3}).requires_grad_();
  c.gradient = restride(c.gradient, {3, 2, 1, 0}, {3, 2, 1, 0});
  ASSERT_FALSE(c.query.is_contiguous());
  const Tensors found = run(c, kernel);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(at::equal(found[i], wanted[i])) << i;
  }
}

TEST_F(BlockSparseAttention, ExpandedGradient) {
  auto c = random_case({2, 2, 8, 8, 30}, 9);
  c.gradient = at::ones({}, at::kDouble).expand(c.query.sizes());
  const Tensors found = run(c, kernel), wanted = run(c, simulated);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_LT(largest_difference(found[i], wanted[i]), 1e-10) << i;
  }
}

TEST_F(BlockSparseAttention, RepeatedBlocksCount) {
  // Listed three times, a key block weighs three times as much.
  const auto layout = std::make_shared<const BlockLayout>(
      1,
      std::vector<std::vector<std::vector<int32_t>>>{{{0, 1, 0, 0}, {1, 0}}});
  EXPECT_EQ(layout->count(0, 0, 0), 3);
  EXPECT_EQ(layout->count(0, 0, 1), 1);
  const at::Tensor zero = at::zeros({1, 2, 1, 1}, at::kDouble);
  const at::Tensor value =
      at::tensor({8.0, 16.0}, at::kDouble).view({1, 2, 1, 1});
  const at::Tensor output = block_sparse_attention(zero, zero, value, layout);
  EXPECT_NEAR(output[0][0].item<double>(), 10.0, 1e-12);
  EXPECT_NEAR(output[0][1].item<double>(), 12.0, 1e-12);
}

TEST_F(BlockSparseAttention, RowsThatAreMaskedEverywhere) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const double least = type == at::kFloat
                             ? std::numeric_limits<float>::lowest()
                             : std::numeric_limits<double>::lowest();
    for (const double bias : {-10000.0, least}) {
      auto c = random_case({1, 2, 16, 8, 70}, 10, type);
      c.options.key_bias = at::full({1, 70}, bias, type);
      const Tensors found = run(c, kernel), wanted = run(c, simulated);
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_TRUE(found[i].isfinite().all().item<bool>());
        EXPECT_LT(largest_difference(found[i], wanted[i]),
                  type == at::kFloat ? 5e-3 : 1e-9)
            << "bias " << bias << ", result " << i;
      }
    }
  }
}

TEST_F(BlockSparseAttention, InfiniteBiasHidesAKey) {
  auto c = random_case({1, 1, 8, 80, 150}, 11);
  at::Tensor bias = at::zeros({1, 150}, at::kDouble);
  // All keys that are looked at first, and single ones.
  bias.slice(1, 0, 70).fill_(-std::numeric_limits<double>::infinity());
  bias.slice(1, 90, 93).fill_(-std::numeric_limits<double>::infinity());
  c.layout = std::make_shared<const BlockLayout>(BlockLayout::dense(80, 1, 2));
  c.options.key_bias = bias;
  const Tensors found = run(c, kernel), wanted = run(c, simulated);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_LT(largest_difference(found[i], wanted[i]), 1e-10) << i;
  }
}

TEST_F(BlockSparseAttention, LargeScoresDoNotOverflow) {
  auto c = random_case({1, 2, 16, 16, 100}, 12, at::kFloat);
  c.options.scale = 500.0;
  const at::Tensor found = kernel(c), wanted = simulated(c);
  EXPECT_TRUE(found.isfinite().all().item<bool>());
  EXPECT_LT(largest_difference(found, wanted), 1e-2);
}

TEST_F(BlockSparseAttention, NotANumberIsNotHidden) {
  auto c = random_case({1, 1, 8, 16, 64}, 13, at::kFloat);
  at::Tensor key = c.key.detach().clone();
  key[0][3][0][0] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor output =
      block_sparse_attention(c.query, key, c.value, c.layout, c.options);
  EXPECT_TRUE(output[0][0].isnan().all().item<bool>());
}

TEST_F(BlockSparseAttention, GradientsAreThoseOfFiniteDifferences) {
  const auto c = random_case({1, 2, 3, 4, 10}, 14, at::kDouble, true);
  const Tensors gradients = run(c, kernel);
  constexpr double kStep = 1e-5;
  c10::NoGradGuard no_grad;
  const Tensors inputs = {c.query, c.key, c.value};
  for (size_t i = 0; i < inputs.size(); ++i) {
    at::Tensor flat = inputs[i].detach().view({-1});  // shares memory
    const at::Tensor gradient = gradients[i + 1].view({-1});
    for (int64_t j = 0; j < flat.numel(); ++j) {
      const double before = flat[j].item<double>();
      flat[j] = before + kStep;
      const double up = (kernel(c) * c.gradient).sum().item<double>();
      flat[j] = before - kStep;
      const double down = (kernel(c) * c.gradient).sum().item<double>();
      flat[j] = before;
      EXPECT_NEAR(gradient[j].item<double>(), (up - down) / (2 * kStep), 1e-7);
    }
  }
}

TEST_F(BlockSparseAttention, SecondDerivatives) {
  const auto c = random_case({2, 2, 3, 4, 11}, 15, at::kDouble, true);
  const at::Tensor gradient = c.gradient.clone().requires_grad_();
  const auto second = [&](at::Tensor (*attention)(const AttentionCase&)) {
    const Tensors first = grad({attention(c)}, {c.query, c.key, c.value},
                               {gradient}, {}, /*create_graph=*/true);
    const at::Tensor loss = first[0].pow(2).sum() + first[1].sin().sum() +
                            (first[2] * first[0]).sum();
    return grad({loss}, {c.query, c.key, c.value, gradient});
  };
  const Tensors found = second(kernel), wanted = second(simulated);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_GT(wanted[i].abs().max().item<double>(), 1e-3);
    EXPECT_LT(largest_difference(found[i], wanted[i]), 1e-10) << i;
  }
}

TEST_F(BlockSparseAttention, GradientsWithAndWithoutGraphAgree) {
  const auto c = random_case({1, 2, 5, 4, 19}, 16, at::kDouble, true);
  const Tensors inputs = {c.query, c.key, c.value};
  const Tensors plain = grad({kernel(c)}, inputs, {c.gradient});
  const Tensors graph = grad({kernel(c)}, inputs, {c.gradient}, {}, true);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_FALSE(plain[i].requires_grad());
    EXPECT_TRUE(graph[i].requires_grad());
    EXPECT_LT(largest_difference(plain[i], graph[i]), 1e-11);
  }
}

TEST_F(BlockSparseAttention, OnlySomeInputsNeedGradients) {
  auto c = random_case({1, 2, 5, 4, 19}, 17);
  const Tensors wanted = run(c, simulated);
  c.query = c.query.detach();
  c.value = c.value.detach();
  const Tensors found = grad({kernel(c)}, {c.key}, {c.gradient});
  EXPECT_LT(largest_difference(found[0], wanted[2]), 1e-11);
}

TEST_F(BlockSparseAttention, ReducedTypes) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const auto c = random_case({1, 2, 16, 8, 60}, 18, type, true);
    auto exact = c;
    exact.query = c.query.detach().to(at::kDouble);
    exact.key = c.key.detach().to(at::kDouble);
    exact.value = c.value.detach().to(at::kDouble);
    const at::Tensor output = kernel(c);
    EXPECT_EQ(output.scalar_type(), type);
    EXPECT_LT(largest_difference(output.to(at::kDouble), simulated(exact)),
              0.03);
    const Tensors gradients =
        grad({output}, {c.query, c.key, c.value}, {c.gradient});
    EXPECT_EQ(gradients[0].scalar_type(), type);
  }
}

TEST_F(BlockSparseAttention, ChangedInputIsNoticedInBackward) {
  auto c = random_case({1, 1, 4, 4, 9}, 19);
  const at::Tensor key = c.key * 1.0;
  const at::Tensor output =
      block_sparse_attention(c.query, key, c.value, c.layout);
  key.detach().zero_();
  EXPECT_THROW(grad({output}, {c.query}, {c.gradient}), c10::Error);
}

}  // namespace
}  // namespace remat::kernels
