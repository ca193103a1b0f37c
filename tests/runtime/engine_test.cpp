// Regions under unusual ways to run backward.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <thread>

#include "remat/memory/meter.h"
#include "remat/runtime/checkpoint.h"
#include "remat/runtime/saved_tensor_hooks.h"

namespace remat {
namespace {

using torch::autograd::grad;

at::Tensor leaf(at::IntArrayRef sizes) {
  return at::randn(sizes, at::kDouble).requires_grad_();
}

// Outside of a backward nothing tells how long a value is wanted: nothing is
// kept.
TEST(Engine, ALookFromOutsideRecomputesEachTime) {
  const at::Tensor x = leaf({100});
  int runs = 0;
  at::Tensor y = checkpoint(
      [&runs](const at::Tensor& t) {
        ++runs;
        return t.sin().exp();
      },
      x);
  const auto node = y.grad_fn();
  auto* const exp =
      dynamic_cast<torch::autograd::generated::ExpBackward0*>(node.get());
  ASSERT_NE(exp, nullptr);
  const MemoryMeter meter;
  for (int look = 1; look <= 3; ++look) {
    EXPECT_TRUE(at::equal(exp->result_.unpack(node), y));
    EXPECT_EQ(runs, 1 + look);
  }
  EXPECT_EQ(meter.live_bytes(), 0);
  grad({y.sum()}, {x});
  EXPECT_THROW(exp->result_.unpack(node), c10::Error);
}

// A hook that runs another backward, through a region of its own, while the
// outer one has recomputed values waiting.
TEST(Engine, BackwardInsideAHook) {
  const at::Tensor x = leaf({4}), z = leaf({4});
  const auto fn = [](const at::Tensor& t) {
    return t.sin().exp() * t.cos().tanh();
  };
  const at::Tensor plain_x = grad({fn(fn(x)).sum()}, {x})[0];
  const at::Tensor plain_z = grad({fn(z).sum()}, {z})[0];
  int outer_runs = 0;
  at::Tensor inner_gradient;
  const at::Tensor y = checkpoint(
      [&](const at::Tensor& t) {
        ++outer_runs;
        at::Tensor middle = fn(t);
        if (!is_recomputing()) {
          middle.register_hook([&](const at::Tensor&) {
            const c10::AutoGradMode with_grad(true);
            inner_gradient = grad({checkpoint(fn, z).sum()}, {z})[0];
          });
        }
        return fn(middle);
      },
      x);
  EXPECT_TRUE(at::equal(grad({y.sum()}, {x})[0], plain_x));
  EXPECT_TRUE(at::equal(inner_gradient, plain_z));
  EXPECT_EQ(outer_runs, 2);
}

TEST(Engine, AThreadInTheMiddle) {
  const at::Tensor x = leaf({8});
  const auto fn = [](const at::Tensor& t) { return t.sin().exp(); };
  const at::Tensor plain = grad({fn(fn(fn(x))).sum()}, {x})[0];
  at::Tensor y = checkpoint(fn, x);
  int packs = 0;
  const SavedTensorHooks hooks(
      [&packs](const at::Tensor& t) {
        ++packs;
        return t;
      },
      [](const at::Tensor& t) { return t; });
  std::thread([&] { y = checkpoint(fn, y); }).join();
  EXPECT_EQ(packs, 0) << "hooks belong to their thread";
  y = checkpoint(fn, y);
  at::Tensor gradient;
  std::thread([&] { gradient = grad({y.sum()}, {x})[0]; }).join();
  EXPECT_TRUE(at::equal(gradient, plain));
}

}  // namespace
}  // namespace remat
