#include "remat/kernels/simd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace remat::kernels {
namespace {

using Four = Simd<float, 4>;

float exp_of(float x) { return Four::exp(Four::broadcast(x))[2]; }

TEST(Simd, ExpIsWithinTwoUnitsInTheLastPlace) {
  double worst = 0;
  for (float x = -87.3f; x < 88.0f; x += 0.000137f) {
    const double exact = std::exp(static_cast<double>(x));
    const float rounded = static_cast<float>(exact);
    const double unit =
        std::nextafter(rounded, std::numeric_limits<float>::infinity()) -
        static_cast<double>(rounded);
    worst = std::max(worst, std::abs(exp_of(x) - exact) / unit);
  }
  EXPECT_LT(worst, 2.0);
}

TEST(Simd, ExpAtItsEnds) {
  EXPECT_EQ(exp_of(0.0f), 1.0f);
  EXPECT_EQ(exp_of(-0.0f), 1.0f);
  EXPECT_EQ(exp_of(-88.0f), 0.0f);
  EXPECT_EQ(exp_of(std::numeric_limits<float>::lowest()), 0.0f);
  EXPECT_EQ(exp_of(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_TRUE(std::isnan(exp_of(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Simd, ExpKeepsLanesApart) {
  const Four::Vector result = Four::exp(Four::Vector{0.0f, -100.0f, 1.0f, NAN});
  EXPECT_EQ(result[0], 1.0f);
  EXPECT_EQ(result[1], 0.0f);
  EXPECT_NEAR(result[2], 2.7182818f, 3e-7f);
  EXPECT_TRUE(std::isnan(result[3]));
}

// Every number of rows that a strip can have, against three nested loops.
TEST(Simd, Product) {
  constexpr int64_t kDepth = 5, kColumns = 16;
  for (int64_t rows = 1; rows <= 20; ++rows) {
    for (const bool accumulate : {false, true}) {
      std::vector<double> a(rows * kDepth), b(kDepth * kColumns);
      for (size_t i = 0; i < a.size(); ++i) a[i] = (i * 7 + 3) % 11 - 5.0;
      for (size_t i = 0; i < b.size(); ++i) b[i] = (i * 5 + 1) % 13 - 6.0;
      std::vector<double> plain(rows * kColumns, 2.0), turned = plain,
                                                       wanted = plain;
      std::vector<double> a_turned(a.size());
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < kColumns; ++j) {
          double sum = accumulate ? 2.0 : 0.0;
          for (int64_t k = 0; k < kDepth; ++k) {
            sum += a[i * kDepth + k] * b[k * kColumns + j];
            a_turned[k * rows + i] = a[i * kDepth + k];
          }
          wanted[i * kColumns + j] = sum;
        }
      }
      Product<double, 2>::run<false>(a.data(), kDepth, b.data(), kColumns,
                                     plain.data(), kColumns, rows, kColumns,
                                     kDepth, accumulate);
      Product<double, 2>::run<true>(a_turned.data(), rows, b.data(), kColumns,
                                    turned.data(), kColumns, rows, kColumns,
                                    kDepth, accumulate);
      EXPECT_EQ(plain, wanted) << rows;  // small whole numbers: exact
      EXPECT_EQ(turned, wanted) << rows;
    }
  }
}

}  // namespace
}  // namespace remat::kernels
