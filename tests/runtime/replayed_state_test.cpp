// The state outside of a function that its recomputation finds as in forward:
// random numbers, autocast, settings of the process.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "remat/runtime/checkpoint.h"
#include "remat/runtime/torch_compat.h"

namespace remat {
namespace {

using torch::autograd::grad;

at::Tensor leaf(at::IntArrayRef sizes) {
  return at::randn(sizes, at::kDouble).requires_grad_();
}

TEST(ReplayedState, AtenRandomNumbersAreReplayedAndPutBack) {
  const at::Tensor x = leaf({64});
  const auto fn = [](const at::Tensor& t) {
    return at::dropout(t.exp(), 0.5, true).sin() + at::rand_like(t) * t;
  };
  at::manual_seed(7);
  const auto plain = grad({fn(x).sum()}, {x})[0];
  const double next = at::rand({1}, at::kDouble).item<double>();
  at::manual_seed(7);
  const auto recomputed = grad({checkpoint(fn, x).sum()}, {x})[0];
  EXPECT_TRUE(at::equal(plain, recomputed));
  EXPECT_EQ(next, at::rand({1}, at::kDouble).item<double>());
}

TEST(ReplayedState, WithoutReplayAtenDrawsAnew) {
  const at::Tensor x = leaf({64});
  std::vector<at::Tensor> masks;
  const auto y = checkpoint(
      CheckpointOptions().preserve_rng_state(false),
      [&](const at::Tensor& t) {
        masks.push_back(at::rand({64}, at::kDouble));
        return (t * masks.back()).exp();
      },
      x);
  grad({y.sum()}, {x});
  ASSERT_EQ(masks.size(), 2u);
  EXPECT_FALSE(at::equal(masks[0], masks[1]));
}

TEST(ReplayedState, AutocastIsReplayed) {
  const at::Tensor x = at::randn({8, 8}).requires_grad_();
  const at::Tensor w = at::randn({8, 8}).requires_grad_();
  std::vector<at::ScalarType> types;
  const auto fn = [&](const at::Tensor& t) {
    const at::Tensor product = at::mm(t, w);
    types.push_back(product.scalar_type());
    return at::mm(product.sin(), w).cos();
  };
  const auto run = [&](auto&& call) {
    compat::set_autocast_dtype(c10::DeviceType::CPU, at::kBFloat16);
    compat::set_autocast_enabled(c10::DeviceType::CPU, true);
    at::autocast::increment_nesting();
    const at::Tensor y = call().to(at::kFloat).sum();
    at::autocast::decrement_nesting();
    at::autocast::clear_cache();
    compat::set_autocast_enabled(c10::DeviceType::CPU, false);
    return grad({y}, {x, w});
  };
  const auto plain = run([&] { return fn(x); });
  const auto recomputed = run([&] { return checkpoint(fn, x); });
  EXPECT_THAT(types, ::testing::Each(at::kBFloat16));
  EXPECT_EQ(types.size(), 3u);
  EXPECT_TRUE(at::equal(plain[0], recomputed[0]));
  EXPECT_TRUE(at::equal(plain[1], recomputed[1]));
}

TEST(ReplayedState, ProcessSettingsAreReplayedAndPutBack) {
  const at::Tensor x = leaf({4});
  const caffe2::TypeMeta dtype = c10::get_default_dtype();
  const auto float32 = compat::float32_settings();
  c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
  at::globalContext().setDeterministicAlgorithms(true, true);
  at::globalContext().setFloat32MatmulPrecision("high");
  const auto less_exact = compat::float32_settings();
  EXPECT_FALSE(less_exact == float32);
  std::vector<bool> deterministic;
  const at::Tensor y = checkpoint(
      [&](const at::Tensor& t) {
        deterministic.push_back(at::globalContext().deterministicAlgorithms());
        EXPECT_TRUE(compat::float32_settings() == less_exact);
        return (t * at::ones({4})).exp();
      },
      x);
  c10::set_default_dtype(dtype);
  at::globalContext().setDeterministicAlgorithms(false, false);
  at::globalContext().setFloat32MatmulPrecision("highest");
  const auto before_backward = compat::float32_settings();
  EXPECT_NO_THROW(grad({y.sum()}, {x}));
  EXPECT_EQ(deterministic, (std::vector<bool>{true, true}));
  EXPECT_TRUE(c10::get_default_dtype() == dtype);
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
  EXPECT_TRUE(compat::float32_settings() == before_backward);
}

}  // namespace
}  // namespace remat
