#include "remat/kernels/dropout.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "remat/base/error.h"
#include "remat/base/philox.h"
#include "remat/kernels/cpu_features.h"

namespace remat::kernels {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 0x123456789ABCDEF0;

// Every value away from zero, so that a dropped one is seen.
at::Tensor sample(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return (at::rand(sizes, at::kDouble) + 0.5).to(type);
}

at::Tensor expected(const at::Tensor& x, double p, uint64_t seed) {
  const auto type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor mask = dropout_mask_reference(x.sizes(), p, seed);
  return (x.to(type) * (mask.to(type) * (1.0 / (1.0 - p)))).to(x.scalar_type());
}

class Dropout : public ::testing::Test {
 protected:
  ~Dropout() override {
    at::set_num_threads(threads_);
    allow_avx2(true);
  }
  int threads_ = at::get_num_threads();
};

TEST_F(Dropout, MaskIsPhiloxOfTheIndex) {
  const at::Tensor mask = dropout_mask_reference({4097}, 0.25, kSeed);
  for (const int64_t i : {0, 1, 2, 3, 4, 1023, 4096}) {
    const PhiloxCounter words =
        philox4x32({static_cast<uint32_t>(i / 4), 0, 0, 0}, philox_key(kSeed));
    EXPECT_EQ(mask[i].item<float>(), words[i % 4] >= 0x40000000u ? 1.0f : 0.0f)
        << i;
  }
}

TEST_F(Dropout, EverySmallSize) {
  for (const bool avx2 : {false, true}) {
    allow_avx2(avx2);
    for (int64_t size = 0; size <= 600; size += size < 80 ? 1 : 37) {
      for (const auto type : {at::kFloat, at::kDouble}) {
        const at::Tensor x = sample({size}, type);
        EXPECT_TRUE(at::equal(dropout(x, 0.3, kSeed), expected(x, 0.3, kSeed)))
            << size << " elements, dtype " << type << ", AVX2 " << avx2;
      }
    }
  }
}

TEST_F(Dropout, LargeOddSizeAndThreads) {
  const at::Tensor x = sample({1000003});
  const at::Tensor wanted = expected(x, 0.1, kSeed);
  for (const int threads : {1, 2, 3, 5}) {
    at::set_num_threads(threads);
    EXPECT_TRUE(at::equal(dropout(x, 0.1, kSeed), wanted)) << threads;
  }
}

TEST_F(Dropout, InstructionSetsAgree) {
  const at::Tensor x = sample({70001});
  const at::Tensor best = dropout(x, 0.7, kSeed);
  allow_avx2(false);
  EXPECT_FALSE(uses_avx2());
  EXPECT_TRUE(at::equal(dropout(x, 0.7, kSeed), best));
}

TEST_F(Dropout, RandomShapesSeedsAndProbabilities) {
  rc::check([] {
    const int64_t rows = *rc::gen::inRange(1, 40);
    const int64_t columns = *rc::gen::inRange(1, 40);
    const auto seed = *rc::gen::arbitrary<uint64_t>();
    const double p = *rc::gen::inRange(1, 1000) / 1000.0;
    const at::Tensor x = sample({columns, rows}).t();  // not contiguous
    const at::Tensor y = dropout(x, p, seed);
    RC_ASSERT(y.is_contiguous());
    RC_ASSERT(at::equal(y, expected(x, p, seed)));
    RC_ASSERT(at::equal(dropout_aten(x, p, seed), y));
  });
}

TEST_F(Dropout, ReducedTypesAreRoundedOnce) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = sample({33, 17}, type);
    const at::Tensor y = dropout(x, 0.4, kSeed);
    EXPECT_EQ(y.scalar_type(), type);
    EXPECT_TRUE(at::equal(y, expected(x, 0.4, kSeed))) << type;
    EXPECT_TRUE(at::equal(dropout_aten(x, 0.4, kSeed), y)) << type;
  }
}

TEST_F(Dropout, EdgesOfProbability) {
  const at::Tensor x = sample({1001});
  // Rounds to a threshold of 0, then of 2^32.
  const double least = 1e-12, most = 1.0 - 1e-12;
  EXPECT_TRUE(at::equal(dropout(x, least, kSeed), x));
  EXPECT_TRUE(at::equal(dropout(x, most, kSeed), at::zeros_like(x)));
  EXPECT_TRUE(at::equal(dropout_aten(x, most, kSeed), at::zeros_like(x)));
}

TEST_F(Dropout, WordAtTheThresholdIsKept) {
  const uint32_t word = philox4x32({0, 0, 0, 0}, philox_key(kSeed))[2];
  const double unit = 1.0 / 4294967296.0;
  const at::Tensor x = sample({4});
  for (const bool avx2 : {false, true}) {
    allow_avx2(avx2);
    EXPECT_NE(dropout(x, word * unit, kSeed)[2].item<float>(), 0.0f);
    EXPECT_EQ(dropout(x, (word + 1.0) * unit, kSeed)[2].item<float>(), 0.0f);
  }
}

TEST_F(Dropout, MeanOfTheMask) {
  for (const double p : {0.1, 0.5, 0.9}) {
    const at::Tensor ones = at::ones({1 << 20}, at::kDouble);
    const double mean =
        dropout(ones, p, kSeed).gt(0).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(mean, 1 - p, 5 * std::sqrt(p * (1 - p) / (1 << 20)));
  }
}

TEST_F(Dropout, SeedsAreUnrelated) {
  const at::Tensor ones = at::ones({1 << 16});
  const at::Tensor one = dropout(ones, 0.5, uint64_t{1}).gt(0);
  for (const uint64_t other : {uint64_t{2}, uint64_t{1} << 32 | 1}) {
    const at::Tensor same = one.eq(dropout(ones, 0.5, other).gt(0));
    EXPECT_NEAR(same.to(at::kDouble).mean().item<double>(), 0.5, 0.01);
  }
}

TEST_F(Dropout, NotANumberPassesThrough) {
  const at::Tensor x =
      at::full({64}, std::numeric_limits<float>::quiet_NaN(), at::kFloat);
  EXPECT_TRUE(dropout(x, 0.5, kSeed).isnan().all().item<bool>());
}

TEST_F(Dropout, MisuseIsNamed) {
  const auto text = [](const at::Tensor& x, double p) -> std::string {
    try {
      dropout(x, p, kSeed);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  const at::Tensor x = at::ones({4});
  for (const double p : {0.0, 1.0, -0.5, 1.5}) {
    EXPECT_THAT(text(x, p), HasSubstr("[dropout] p is "));
  }
  EXPECT_THAT(text(x, std::nan("")), HasSubstr("[dropout] p is nan"));
  EXPECT_THAT(text(at::ones({4}, at::kLong), 0.5),
              HasSubstr("[dropout] x has dtype Long"));
  EXPECT_THAT(text(at::Tensor(), 0.5), HasSubstr("[dropout] x is undefined"));
}

}  // namespace
}  // namespace remat::kernels
