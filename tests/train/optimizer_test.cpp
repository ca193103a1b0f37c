#include "remat/train/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "remat/train/gradients.h"

namespace remat::train {
namespace {

at::Tensor parameter(at::IntArrayRef shape, double value, double gradient) {
  at::Tensor tensor =
      at::full(shape, value, at::kFloat).set_requires_grad(true);
  tensor.mutable_grad() = at::full(shape, gradient, at::kFloat);
  return tensor;
}

TEST(Optimizer, OnlyMatricesDecay) {
  at::manual_seed(1);
  const at::Tensor matrix = parameter({3, 2}, 1, 0);
  const at::Tensor bias = parameter({3}, 1, 0);
  TrainOptions options;
  options.weight_decay = 0.1;
  Optimizer optimizer({matrix, bias}, options);
  optimizer.step(0.5);
  EXPECT_TRUE(at::allclose(matrix, at::full({3, 2}, 1 - 0.5 * 0.1)));
  EXPECT_TRUE(at::equal(bias, at::ones({3})));
}

TEST(Optimizer, UpdateSecondsGrowWithTheParameters) {
  const TrainOptions options;
  const at::Tensor large = at::zeros({1 << 20}), small = at::zeros({3});
  const double once = measure_update_seconds({large, small}, options);
  const double often =
      measure_update_seconds(std::vector<at::Tensor>(1000, large), options);
  EXPECT_GT(once, 0);
  EXPECT_GT(often, 50 * once);
  EXPECT_EQ(measure_update_seconds({}, options), 0);
  EXPECT_FALSE(large.grad().defined());
}

TEST(Optimizer, IsAdamWWithTheGivenBetasAndEpsilon) {
  TrainOptions options;
  options.weight_decay = 0.01;
  options.adam_beta1 = 0.8;
  options.adam_beta2 = 0.95;
  options.adam_epsilon = 1e-3;
  const at::Tensor weight = parameter({1, 1}, 2, 0);
  Optimizer optimizer({weight}, options);
  double x = 2, m = 0, v = 0;
  for (int step = 1; step <= 5; ++step) {
    const double g = 0.3 * step - 1, rate = 0.1 / step;
    weight.mutable_grad() = at::full({1, 1}, g, at::kFloat);
    optimizer.step(rate);
    m = 0.8 * m + 0.2 * g;
    v = 0.95 * v + 0.05 * g * g;
    x -= rate * 0.01 * x;
    x -= rate * (m / (1 - std::pow(0.8, step))) /
         (std::sqrt(v / (1 - std::pow(0.95, step))) + 1e-3);
    EXPECT_NEAR(weight.item<double>(), x, 1e-6) << step;
  }
}

TEST(Optimizer, LeavesParametersWithoutGradientAlone) {
  const at::Tensor used = parameter({2, 2}, 1, 1);
  const at::Tensor unused = at::ones({2, 2}).set_requires_grad(true);
  TrainOptions options;
  options.weight_decay = 0.1;
  Optimizer optimizer({used, unused}, options);
  optimizer.step(0.1);
  EXPECT_TRUE(at::equal(unused, at::ones({2, 2})));
  EXPECT_FALSE(at::equal(used, at::ones({2, 2})));
}

TEST(Gradients, NormIsThatOfAllTogether) {
  const at::Tensor a = parameter({2, 2}, 0, 2);
  const at::Tensor b = parameter({9}, 0, -1);
  const at::Tensor unused = at::ones({3}).set_requires_grad(true);
  EXPECT_DOUBLE_EQ(gradient_norm({a, b, unused}), 5);
}

TEST(Gradients, NormDoesNotDependOnThreads) {
  at::manual_seed(3);
  const at::Tensor weight = at::zeros({700, 333}).set_requires_grad(true);
  weight.mutable_grad() = at::randn({700, 333});
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double one = gradient_norm({weight});
  at::set_num_threads(3);
  const double three = gradient_norm({weight});
  at::set_num_threads(threads);
  EXPECT_EQ(one, three);
  EXPECT_NEAR(one, weight.grad().to(at::kDouble).norm().item<double>(), 1e-9);
}

TEST(Gradients, ClippingScalesToTheNormAndLeavesSmallOnesAlone) {
  const at::Tensor a = parameter({2, 2}, 0, 2);
  const at::Tensor b = parameter({9}, 0, -1);
  clip_gradients({a, b}, 5, 10);
  EXPECT_TRUE(at::equal(a.grad(), at::full({2, 2}, 2.0)));
  clip_gradients({a, b}, 5, 1);
  EXPECT_NEAR(gradient_norm({a, b}), 1, 1e-6);
  EXPECT_TRUE(at::allclose(a.grad(), at::full({2, 2}, 0.4)));
}

TEST(Gradients, OfOtherTypesAndStrides) {
  const at::Tensor weight =
      at::zeros({4, 3}, at::kDouble).t().set_requires_grad(true);
  weight.mutable_grad() = at::ones({4, 3}, at::kDouble).t();
  EXPECT_DOUBLE_EQ(gradient_norm({weight}), std::sqrt(12.0));
  clear_gradients({weight});
  EXPECT_FALSE(weight.grad().defined());
}

}  // namespace
}  // namespace remat::train
