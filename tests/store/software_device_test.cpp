// The device that the other tests stand on: it computes what the CPU does, and
// a mover of tensors that forgets one wait is seen.
#include "tests/device/software_device.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace remat {
namespace {

using software::kDevice;
using software::Order;
using torch::autograd::grad;

constexpr Order kOrders[] = {Order::kLazy, Order::kSideFirst,
                             Order::kComputeFirst, Order::kRandom};

TEST(SoftwareDevice, ComputesWhatTheCpuDoes) {
  const auto loss = [](const at::Tensor& x, const at::Tensor& w) {
    const at::Tensor h = at::relu(at::mm(x.t().contiguous(), w)) * 0.5;
    const at::Tensor p = at::softmax(h.view({2, -1}), 1) + h[0].sum();
    return at::layer_norm(p, {p.size(1)}).pow(3).mean() +
           at::cat({h, h.narrow(0, 0, 1)}).exp().sum();
  };
  const at::Tensor x = at::randn({4, 6}, at::kDouble).requires_grad_();
  const at::Tensor w = at::randn({4, 6}, at::kDouble).requires_grad_();
  const auto expected = grad({loss(x, w)}, {x, w});
  for (const Order order : kOrders) {
    software::reset(order);
    const at::Tensor dx = x.detach().to(kDevice).requires_grad_();
    const at::Tensor dw = w.detach().to(kDevice).requires_grad_();
    const at::Tensor y = loss(dx, dw);
    EXPECT_EQ(y.device(), kDevice);
    const auto gradients = grad({y}, {dx, dw});
    for (size_t i = 0; i < 2; ++i) {
      // Not to the bit: libtorch composes some operators that the CPU has
      // whole.
      EXPECT_TRUE(at::allclose(gradients[i].cpu(), expected[i], 1e-12));
    }
  }
}

TEST(SoftwareDevice, NothingRunsBeforeSomebodyWaits) {
  software::reset(Order::kLazy);
  const at::Tensor x = at::ones({4}).to(kDevice);
  const at::Tensor y = x + 1;
  const auto* const memory = static_cast<const float*>(y.data_ptr());
  EXPECT_NE(memory[0], 2);
  EXPECT_EQ(y.cpu()[0].item<float>(), 2);
  EXPECT_EQ(memory[0], 2);
}

TEST(SoftwareDevice, FreedMemoryIsUsedAgainAtOnceInTheOrderOfItsStream) {
  software::reset(Order::kLazy);
  const int64_t before = software::live_bytes();
  at::Tensor x = at::ones({1234}).to(kDevice);
  const at::Tensor y = x + 1;
  const void* const address = x.data_ptr();
  x.reset();
  EXPECT_EQ(software::live_bytes(), before + 1234 * 4);
  const at::Tensor z = at::empty({1234}, at::TensorOptions(kDevice));
  EXPECT_EQ(z.data_ptr(), address);
  EXPECT_EQ(software::reused_blocks(), 1);
  EXPECT_TRUE(at::equal(y.cpu(), at::full({1234}, 2.0)));
  EXPECT_TRUE(z.cpu().isnan().all().item<bool>());
}

TEST(SoftwareDevice, ClocksCountWhatRunsBesideEachOther) {
  software::reset(Order::kRandom, 3);
  const at::Tensor x = at::ones({100}, at::kByte).to(kDevice);
  at::Tensor host = at::empty({100}, at::kByte);
  const c10::Stream side = c10::impl::VirtualGuardImpl(at::kPrivateUse1)
                               .getStreamFromGlobalPool(kDevice);
  software::set_costs(1, 0.05);
  const at::Tensor y = x + x + x;
  {
    const c10::StreamGuard guard(side);
    host.copy_(x, true);
  }
  EXPECT_DOUBLE_EQ(software::finish(), 5);
}

// What a mover may forget.
enum class Forgets {
  kNothing,
  kWaitForProducer,
  kToHoldTheSource,
  kWaitForCopyOut,
  kWaitForNewMemory,
  kWaitBeforeConsumer,
  kHostIsStillRead,
};

// Moves a tensor out and back beside other work; whether all values are right.
bool moves_right(Forgets forgets, Order order, uint64_t seed) {
  software::reset(order, seed);
  const c10::impl::VirtualGuardImpl device(at::kPrivateUse1);
  const c10::Stream compute = device.getStream(kDevice);
  const c10::Stream out = device.getStreamFromGlobalPool(kDevice);
  const c10::Stream in = device.getStreamFromGlobalPool(kDevice);
  const at::Tensor numbers = at::arange(64, at::kDouble);
  const at::Tensor x = numbers.to(kDevice);

  at::Tensor moved = x * 2;
  at::Tensor host = at::zeros({64}, at::kDouble);
  c10::Event produced(at::kPrivateUse1), copied(at::kPrivateUse1),
      allocated(at::kPrivateUse1), arrived(at::kPrivateUse1);
  if (forgets != Forgets::kWaitForProducer) {
    produced.record(compute);
    produced.block(out);
  }
  {
    const c10::StreamGuard guard(out);
    host.copy_(moved, true);
  }
  copied.record(out);
  const at::Tensor source =
      forgets == Forgets::kToHoldTheSource ? at::Tensor() : moved;
  moved.reset();
  const at::Tensor other = x * 5;

  at::Tensor temporary = x * 7;
  const at::Tensor user = temporary + 1;
  temporary.reset();
  const at::Tensor back = at::empty({64}, x.options());
  if (forgets != Forgets::kWaitForNewMemory) {
    allocated.record(compute);
    allocated.block(in);
  }
  if (forgets != Forgets::kWaitForCopyOut) {
    copied.block(in);
  }
  {
    const c10::StreamGuard guard(in);
    back.copy_(host, true);
  }
  arrived.record(in);
  if (forgets != Forgets::kWaitBeforeConsumer) {
    arrived.block(compute);
  }
  const at::Tensor consumed = back + 1;
  (forgets == Forgets::kHostIsStillRead ? out : in).synchronize();
  host.fill_(-1);
  const bool right = at::equal(consumed.cpu(), numbers * 2 + 1) &&
                     at::equal(other.cpu(), numbers * 5) &&
                     at::equal(user.cpu(), numbers * 7 + 1);
  software::finish();
  return right;
}

TEST(SoftwareDevice, ShowsEachWaitThatIsForgotten) {
  for (const Order order : kOrders) {
    for (uint64_t seed = 0; seed < (order == Order::kRandom ? 200 : 1);
         ++seed) {
      EXPECT_TRUE(moves_right(Forgets::kNothing, order, seed)) << seed;
    }
  }
  const auto is_shown = [](Forgets forgets, Order order) {
    EXPECT_FALSE(moves_right(forgets, order, 0)) << static_cast<int>(forgets);
    int wrong = 0;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      wrong += moves_right(forgets, Order::kRandom, seed) ? 0 : 1;
    }
    EXPECT_GT(wrong, 10) << static_cast<int>(forgets);
  };
  is_shown(Forgets::kWaitForProducer, Order::kSideFirst);
  is_shown(Forgets::kToHoldTheSource, Order::kComputeFirst);
  is_shown(Forgets::kWaitForCopyOut, Order::kLazy);
  is_shown(Forgets::kWaitForNewMemory, Order::kSideFirst);
  is_shown(Forgets::kWaitBeforeConsumer, Order::kComputeFirst);
  is_shown(Forgets::kHostIsStillRead, Order::kLazy);
}

}  // namespace
}  // namespace remat
