#include "remat/nn/random_blocks.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <set>

#include "remat/base/error.h"
#include "remat/io/safetensors.h"

namespace remat::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::UnorderedElementsAre;

std::string fixture(const std::string& name) {
  return std::string(REMAT_GOLDEN_DIR) + "/bigbird_rand_plans/" + name;
}

at::Tensor to_tensor(const RandomPlan& plan) {
  const auto rows = static_cast<int64_t>(plan[0].size());
  const auto width = static_cast<int64_t>(plan[0][0].size());
  at::Tensor tensor =
      at::empty({static_cast<int64_t>(plan.size()), rows, width}, at::kInt);
  auto* next = tensor.data_ptr<int32_t>();
  for (const auto& head : plan) {
    for (const auto& row : head) {
      EXPECT_EQ(static_cast<int64_t>(row.size()), width);
      next = std::copy(row.begin(), row.end(), next);
    }
  }
  return tensor;
}

TEST(NumpyRandom, WordsAndPermutationsAreThoseOfNumpy) {
  const io::SafetensorsFile file(fixture("numpy_permutation.safetensors"));
  for (const uint32_t seed : {0u, 1u, 2u, 11u, 12345u}) {
    const std::string prefix = "seed" + std::to_string(seed) + ".";
    NumpyRandom words(seed);
    const at::Tensor want = file.tensor(prefix + "u32");
    for (int64_t i = 0; i < want.numel(); ++i) {
      EXPECT_EQ(words.next(), want[i].item<int64_t>());
    }
    NumpyRandom random(seed);
    int number = 0;
    for (const int size : {2, 7, 13, 13, 62, 100}) {
      std::vector<int32_t> values(static_cast<size_t>(size));
      std::iota(values.begin(), values.end(), 0);
      const std::string name = prefix + "perm" + std::to_string(number++) +
                               "_of_" + std::to_string(size);
      EXPECT_TRUE(at::equal(at::tensor(random.permutation(values), at::kInt),
                            file.tensor(name)))
          << name;
    }
  }
}

TEST(RandomBlocks, PlansAreThoseOfHuggingFace) {
  const io::SafetensorsFile file(fixture("expected.safetensors"));
  EXPECT_THAT(file.names(), SizeIs(32));
  for (const std::string& name : file.names()) {
    int sequence = 0, block = 0, random = 0, heads = 0, positions = 0, seed = 0;
    ASSERT_EQ(
        std::sscanf(name.c_str(), "seq%d_block%d_r%d_heads%d_maxpos%d_seed%d",
                    &sequence, &block, &random, &heads, &positions, &seed),
        6);
    const RandomPlanShape shape{heads, sequence / block, block, random,
                                positions};
    EXPECT_TRUE(at::equal(
        to_tensor(draw_numpy_plan(shape, static_cast<uint32_t>(seed))),
        file.tensor(name)))
        << name;
  }
}

TEST(RandomBlocks, TooFewCandidatesForHuggingFacesDrawing) {
  try {
    draw_numpy_plan({12, 16, 256, 3, 4096}, 0);
    FAIL() << "drew from too few candidates";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("cannot draw 3 random blocks for query block 2 from "
                          "0 candidates with block_size 256; take a smaller "
                          "block_size"));
  }
}

// numpy broadcasts the only candidate of query block 2 over its row.
TEST(RandomBlocks, OneCandidateIsRepeatedAsByNumpy) {
  const RandomPlan plan = draw_numpy_plan({1, 16, 192, 2, 3072}, 0);
  EXPECT_THAT(plan[0][1], ElementsAre(4, 4));
}

TEST(RandomBlocks, EvaluationSeesBlockZeroAgain) {
  const RandomPlan plan = zero_plan({2, 10, 16, 3, 256});
  EXPECT_THAT(plan, SizeIs(2));
  EXPECT_THAT(plan[1], SizeIs(8));
  EXPECT_THAT(plan[1][7], ElementsAre(0, 0, 0));
}

TEST(RandomBlocks, PhiloxDrawsUniformlyFromAllOthers) {
  const RandomPlanShape shape{2, 20, 16, 3, 4096};
  std::vector<int> counts(20, 0);
  constexpr int kLayers = 2000;
  for (uint64_t layer = 0; layer < kLayers; ++layer) {
    const RandomPlan plan = draw_philox_plan(shape, layer);
    ASSERT_THAT(plan, SizeIs(2));
    ASSERT_THAT(plan[0], SizeIs(18));
    for (const auto& head : plan) {
      for (int32_t i = 1; i < 19; ++i) {
        const auto& drawn = head[static_cast<size_t>(i) - 1];
        ASSERT_THAT(drawn, SizeIs(3));
        ASSERT_THAT(std::set<int32_t>(drawn.begin(), drawn.end()), SizeIs(3));
        for (const int32_t block : drawn) {
          ASSERT_GT(block, 0);
          ASSERT_LT(block, 19);
          ASSERT_GT(std::abs(block - i), 1);
          counts[static_cast<size_t>(block)] += i == 10 ? 1 : 0;
        }
      }
    }
  }
  // 12000 draws over the 15 blocks 1 .. 8 and 12 .. 18; sigma is about 25.
  for (const int block : {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14, 15, 16, 17, 18}) {
    EXPECT_NEAR(counts[static_cast<size_t>(block)], 800, 130) << block;
  }
}

TEST(RandomBlocks, PhiloxIsAFunctionOfSeedHeadAndBlock) {
  const RandomPlan one = draw_philox_plan({2, 30, 16, 3, 4096}, 5);
  EXPECT_EQ(one, draw_philox_plan({2, 30, 16, 3, 4096}, 5));
  EXPECT_NE(one, draw_philox_plan({2, 30, 16, 3, 4096}, 6));
  EXPECT_NE(one[0], one[1]);
}

TEST(RandomBlocks, PhiloxListsAllWhereTheyAreTooFew) {
  const RandomPlan plan = draw_philox_plan({1, 7, 16, 4, 4096}, 0);
  EXPECT_THAT(plan[0][0], UnorderedElementsAre(3, 4, 5));
  EXPECT_THAT(plan[0][2], UnorderedElementsAre(1, 5));
}

TEST(RandomBlocks, KeyListsAreThoseOfThePaper) {
  const RandomPlan plan = draw_numpy_plan({2, 12, 16, 2, 256}, 0);
  const auto lists = key_block_lists(12, plan);
  ASSERT_THAT(lists, SizeIs(2));
  for (size_t head = 0; head < 2; ++head) {
    ASSERT_THAT(lists[head], SizeIs(12));
    const auto with_random = [&](std::vector<int32_t> blocks, size_t query) {
      blocks.insert(blocks.end(), plan[head][query - 1].begin(),
                    plan[head][query - 1].end());
      return testing::UnorderedElementsAreArray(blocks);
    };
    EXPECT_THAT(lists[head][0], SizeIs(12));
    EXPECT_THAT(lists[head][11], SizeIs(12));
    EXPECT_THAT(lists[head][1], with_random({0, 1, 2, 11}, 1));
    EXPECT_THAT(lists[head][10], with_random({0, 9, 10, 11}, 10));
    EXPECT_THAT(lists[head][2], with_random({0, 1, 2, 3, 11}, 2));
    EXPECT_THAT(lists[head][5], with_random({0, 4, 5, 6, 11}, 5));
  }
}

TEST(RandomBlocks, KeyListsWithoutRandomBlocks) {
  const auto lists = key_block_lists(6, zero_plan({1, 6, 16, 0, 256}));
  EXPECT_THAT(lists[0][3], UnorderedElementsAre(0, 2, 3, 4, 5));
  EXPECT_THAT(lists[0][4], UnorderedElementsAre(0, 3, 4, 5));
}

}  // namespace
}  // namespace remat::nn
