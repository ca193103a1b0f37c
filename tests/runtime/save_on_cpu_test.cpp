// Offloading of what autograd saves, on the software device and on the CPU.
#include "remat/runtime/save_on_cpu.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <thread>

#include "remat/base/error.h"
#include "remat/runtime/checkpoint.h"
#include "remat/runtime/policy.h"
#include "tests/device/software_device.h"

namespace remat {
namespace {

using software::kDevice;
using software::Order;
using ::testing::HasSubstr;
using torch::autograd::backward;
using torch::autograd::grad;

constexpr Order kOrders[] = {Order::kLazy, Order::kSideFirst,
                             Order::kComputeFirst, Order::kRandom};

at::Tensor device_leaf(const at::Tensor& values) {
  return values.to(kDevice).requires_grad_();
}

at::Tensor device_leaf(at::IntArrayRef sizes) {
  return device_leaf(at::randn(sizes, at::kDouble));
}

// Everything is moved, and what is counted is what was asked for.
SaveOnCpuOptions all(HostStoreOptions options = {}) {
  return SaveOnCpuOptions().min_bytes(0).store(host_store(options.prefetch(0)));
}

template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(SaveOnCpu, LeavesCpuTensorsAlone) {
  const at::Tensor x = at::randn({400}, at::kDouble).requires_grad_();
  const at::Tensor plain = grad({x.sin().exp().sum()}, {x})[0];
  for (const bool pin : {false, true}) {
    at::Tensor y;
    {
      const SaveOnCpu offload(pin);
      y = x.sin().exp().sum();
      EXPECT_EQ(offload.tensors_stayed(), 2);
      EXPECT_EQ(offload.store()->statistics().tensors_put, 0);
    }
    EXPECT_TRUE(at::equal(grad({y}, {x})[0], plain));
  }
  // Nor sparse ones.
  const at::Tensor sparse = at::eye(3, at::kDouble).to_sparse();
  const at::Tensor w = at::randn({3, 2}, at::kDouble).requires_grad_();
  const SaveOnCpu offload;
  EXPECT_TRUE(at::equal(grad({at::mm(sparse, w).sum()}, {w})[0],
                        at::ones({3, 2}, at::kDouble)));
}

// Case 21: trl#4247, torchtune#1867, DeepSpeed#8388.
TEST(SaveOnCpu, KeepsLayoutAndMovesAStorageOnce) {
  for (const Order order : kOrders) {
    software::reset(order);
    const at::Tensor x = device_leaf(at::arange(6, at::kDouble).view({2, 3}));
    // A value that nobody else holds; of the leaf itself, see below.
    const at::Tensor e = (x * 1).t().unsqueeze(0).expand({4, 3, 2});
    at::Tensor y;
    std::shared_ptr<HostStore> store;
    {
      const SaveOnCpu offload(all());
      store = offload.store();
      y = (e * e).sum();
      EXPECT_EQ(store->statistics().tensors_put, 2);
      EXPECT_EQ(store->statistics().tensors_shared, 1);
      EXPECT_EQ(store->statistics().bytes_out, 48);
      const auto stored = store->put(e);
      EXPECT_EQ(stored->get().strides(), at::IntArrayRef({0, 1, 3}));
    }
    backward({y});
    EXPECT_EQ(store->statistics().bytes_out, 48);
    EXPECT_EQ(store->statistics().live_bytes, 0);
    EXPECT_TRUE(at::equal(x.grad().cpu(),
                          at::arange(0, 48, 8, at::kDouble).view({2, 3})));
    software::finish();
  }
}

// Case 21, second part, and what a leaf's own memory is.
TEST(SaveOnCpu, ParametersStay) {
  software::reset(Order::kRandom, 2);
  const at::Tensor input = at::randn({5, 3}, at::kDouble).to(kDevice);
  const at::Tensor w = device_leaf({2, 3});
  const at::Tensor b = device_leaf({2});
  const auto run = [&](const SaveOnCpuOptions& options, int64_t stayed,
                       int64_t bytes) {
    at::Tensor y;
    std::shared_ptr<HostStore> store;
    {
      const SaveOnCpu offload(options);
      store = offload.store();
      // For the gradient of the input, too, the weight is saved.
      const at::Tensor x = input.detach().requires_grad_().mul(1);
      y = at::relu(at::linear(x, w, b)).sum();
      EXPECT_EQ(offload.tensors_stayed(), stayed);
      EXPECT_EQ(store->statistics().bytes_out, bytes);
    }
    const auto gradients = grad({y}, {w, b});
    return gradients[0].cpu();
  };
  const int64_t x_bytes = 5 * 3 * 8, w_bytes = 2 * 3 * 8, y_bytes = 5 * 2 * 8;
  const at::Tensor kept = run(all(), 1, x_bytes + y_bytes);
  EXPECT_TRUE(at::equal(
      kept, run(all().skip_parameters(false), 0, x_bytes + w_bytes + y_bytes)));
  // A view of it that has no graph, once the leaf was seen.
  std::shared_ptr<HostStore> store;
  const SaveOnCpu offload(all());
  const at::Tensor square = w * w;
  const at::Tensor other = device_leaf({3, 2}) * w.detach().t();
  EXPECT_EQ(offload.tensors_stayed(), 3);
  EXPECT_EQ(offload.store()->statistics().bytes_out, 0);
  // And frozen weights, which must be named.
  const at::Tensor frozen = at::randn({3, 2}, at::kDouble).to(kDevice);
  const SaveOnCpu stays(all().stay({frozen}));
  const at::Tensor scaled = device_leaf({2, 3}) * 1 * frozen.t();
  EXPECT_EQ(stays.store()->statistics().bytes_out, 0);
}

TEST(SaveOnCpu, SmallTensorsStay) {
  software::reset(Order::kLazy);
  const at::Tensor x = device_leaf({128}) * 1;
  const SaveOnCpu offload;
  const at::Tensor y = x.narrow(0, 0, 127).sin();
  EXPECT_EQ(offload.store()->statistics().tensors_put, 0);
  // Few bytes, however many elements.
  const at::Tensor z = x.narrow(0, 0, 1).expand({5000}).sin();
  EXPECT_EQ(offload.store()->statistics().tensors_put, 0);
  const at::Tensor all_of_it = x.sin();
  EXPECT_EQ(offload.store()->statistics().bytes_out, 1024);
  EXPECT_EQ(offload.tensors_stayed(), 2);
}

// Case 22: torchtune#1867, #2683, trl#7195: the memory of what was packed is
// overwritten at once, and backward gets the right bytes in every order.
TEST(SaveOnCpu, DeviceMemoryIsReusedWhileCopiesFly) {
  const at::Tensor start = at::linspace(-1, 1, 512, at::kDouble);
  const auto train = [](const at::Tensor& x,
                        const std::shared_ptr<HostStore>& store) {
    at::Tensor y = x;
    {
      std::optional<SaveOnCpu> offload;
      if (store != nullptr) {
        offload.emplace(SaveOnCpuOptions().store(store));
      }
      for (int i = 0; i < 8; ++i) {
        y = (y * 1.1).sin();
        const at::Tensor overwrites = x * 3;
      }
      y = y.sum();
    }
    return grad({y}, {x})[0];
  };
  software::reset(Order::kLazy);
  const at::Tensor expected = train(device_leaf(start), nullptr).cpu();
  for (const Order order : kOrders) {
    for (uint64_t seed = 0; seed < 25; ++seed) {
      software::reset(order, seed);
      const auto store = host_store();
      const at::Tensor x = device_leaf(start);
      const int64_t waits = software::host_waits();
      const at::Tensor gradient = train(x, store);
      EXPECT_GT(store->statistics().bytes_in, 0);
      // Neither pack nor unpack waits.
      EXPECT_EQ(software::host_waits(), waits);
      EXPECT_GT(software::reused_blocks(), 0);
      EXPECT_TRUE(at::equal(gradient.cpu(), expected)) << seed;
      EXPECT_EQ(store->statistics().live_bytes, 0);
      software::finish();
    }
  }
}

// Case 22, overlap: where the layers take as long as the copies, less than a
// tenth of the time of the copies is to be seen.
TEST(SaveOnCpu, CopiesHideBehindTheComputation) {
  const auto seconds = [](std::shared_ptr<HostStore> store, int layers) {
    software::reset(Order::kLazy);
    const at::Tensor x = device_leaf({1024});
    at::Tensor y = x * 1;
    software::finish();
    const double copy_seconds = 1;
    software::set_costs(1, store ? copy_seconds / (1024 * 8) : 0);
    const double begin = software::finish();
    {
      std::optional<SaveOnCpu> offload;
      if (store != nullptr) {
        offload.emplace(SaveOnCpuOptions().store(store));
      }
      for (int i = 0; i < layers; ++i) {
        y = y.sin();
      }
    }
    backward({y}, {at::ones_like(y)});
    return software::finish() - begin;
  };
  const int layers = 50;
  const double plain = seconds(nullptr, layers);
  const double copies = 2 * layers;
  const double visible = seconds(host_store(), layers) - plain;
  EXPECT_LT(visible, 0.1 * copies) << plain;
  // What is measured: without prefetch the copies back are all to be seen, and
  // with waiting all are.
  EXPECT_GT(seconds(host_store(HostStoreOptions().prefetch(0)), layers) - plain,
            0.4 * copies);
  EXPECT_GT(
      seconds(host_store(HostStoreOptions().asynchronous(false)), layers) -
          plain,
      0.95 * copies);
}

TEST(SaveOnCpu, DeviceMemoryFalls) {
  software::reset(Order::kRandom, 4);
  const at::Tensor x = device_leaf({1024});
  const auto held_by_forward = [&x](bool offloads) {
    std::optional<SaveOnCpu> offload;
    if (offloads) {
      offload.emplace();
    }
    at::Tensor y = x * 1;
    const int64_t before = software::live_bytes();
    for (int i = 0; i < 40; ++i) {
      y = y.sin();
    }
    return (software::live_bytes() - before) / (1024 * 8);
  };
  EXPECT_EQ(held_by_forward(false), 40);
  EXPECT_LE(held_by_forward(true), 5);
}

TEST(SaveOnCpu, ChangesInPlaceAreErrors) {
  software::reset(Order::kLazy);
  const at::Tensor device = device_leaf({200});
  const at::Tensor host = at::randn({200}, at::kDouble).requires_grad_();
  for (const at::Tensor& x : {device, host}) {
    at::Tensor y, middle;
    {
      const SaveOnCpu offload;
      middle = x * 2;
      y = middle.sin().sum();
    }
    middle.add_(1);
    EXPECT_THAT(
        error_of([&] { grad({y}, {x}); }),
        HasSubstr(remat::str(
            "[save_on_cpu] a saved tensor (Double[200] on ", x.device().str(),
            ") was changed in place before backward: it is at version 1, and "
            "was saved at version 0; change a clone instead")));
  }
  software::finish();
}

TEST(SaveOnCpu, SavedBeforeAndAfterAChange) {
  software::reset(Order::kLazy);
  const at::Tensor w = device_leaf({200});
  const auto run = [&w](bool offloads) {
    std::optional<SaveOnCpu> offload;
    if (offloads) {
      offload.emplace(all());
    }
    const at::Tensor buffer = at::ones({200}, w.options()).detach();
    const at::Tensor values = buffer.clone();
    at::Tensor y = (w * 2) * values.clone();
    buffer.add_(1);
    y = y + (w * 3) * buffer;  // saved at version 1
    return grad({y.sum()}, {w})[0].cpu();
  };
  EXPECT_TRUE(at::equal(run(true), run(false)));
}

TEST(SaveOnCpu, DoubleBackwardAndRetainGraph) {
  for (const Order order : kOrders) {
    software::reset(order, 6);
    const at::Tensor x = device_leaf({200});
    const auto second = [&x](bool offloads) {
      std::optional<SaveOnCpu> offload;
      if (offloads) {
        offload.emplace(all());
      }
      const at::Tensor y = (x * 2).pow(3).sin().sum();
      const at::Tensor once = grad({y}, {x}, {}, true)[0];
      const at::Tensor first = grad({y}, {x}, {}, true, true)[0];
      EXPECT_TRUE(at::equal(once.cpu(), first.detach().cpu()));
      return grad({first.pow(2).sum()}, {x})[0].cpu();
    };
    EXPECT_TRUE(at::equal(second(true), second(false)));
  }
}

TEST(SaveOnCpu, AroundAndInsideRegions) {
  const auto layer = [](const at::Tensor& t) {
    return (t.sin() * t).exp().tanh();
  };
  // This libtorch may have no generator of such a device.
  const auto options = CheckpointOptions().preserve_rng_state(false);
  for (const Order order : kOrders) {
    software::reset(order, 8);
    const at::Tensor x = device_leaf({200});
    const at::Tensor plain = grad({layer(layer(x * 2)).sum()}, {x})[0].cpu();
    at::Tensor y;
    const auto store = host_store();
    const auto offloads = SaveOnCpuOptions().store(store);
    {
      const SaveOnCpu offload(offloads);
      y = checkpoint(options, layer, checkpoint(options, layer, x * 2)).sum();
    }
    // The inputs of the regions, and nothing inside.
    EXPECT_EQ(store->statistics().bytes_out, 2 * 200 * 8);
    EXPECT_TRUE(at::equal(grad({y}, {x})[0].cpu(), plain));

    for (const bool debug : {false, true}) {
      const auto inside = [&](const at::Tensor& t) {
        const at::Tensor first = layer(t);
        const SaveOnCpu offload(offloads);
        return layer(first);
      };
      y = checkpoint(CheckpointOptions(options)
                         .debug(debug)
                         .determinism_check(DeterminismCheck::kMetadata)
                         .policy(policy::operators({"aten::sin"})),
                     inside, x * 2)
              .sum();
      EXPECT_TRUE(at::equal(grad({y}, {x})[0].cpu(), plain));
    }
    y.reset();
    EXPECT_EQ(store->statistics().live_bytes, 0);
    software::finish();
  }
}

// What inner hooks make goes on to the host.
TEST(SaveOnCpu, ComposesWithOtherHooks) {
  software::reset(Order::kRandom, 3);
  const at::Tensor x = device_leaf(at::randn({400}).to(at::kDouble));
  at::Tensor y;
  const auto store = host_store();
  {
    const SaveOnCpu offload(SaveOnCpuOptions().store(store));
    const SavedTensorHooks compress(
        [](const at::Tensor& t) { return t.to(at::kFloat); },
        [](const at::Tensor& packed) { return packed.to(at::kDouble); },
        HookNesting::kThenOuter);
    y = (x * x).sum();
  }
  EXPECT_EQ(store->statistics().bytes_out, 2 * 400 * 4);
  EXPECT_TRUE(at::equal(grad({y}, {x})[0].cpu(), 2 * x.detach().cpu()));
  const SavedTensorHooksDisabled disabled("[mine] no hooks");
  EXPECT_THAT(error_of([] { const SaveOnCpu offload; }),
              HasSubstr("[mine] no hooks"));
}

TEST(SaveOnCpu, FailedCopiesPassThrough) {
  software::reset(Order::kLazy);
  const at::Tensor x = device_leaf({200});
  const auto store = host_store();
  at::Tensor y;
  {
    const SaveOnCpu offload(SaveOnCpuOptions().store(store));
    const at::Tensor middle = x * 2;
    software::fail_copy_after(0);
    EXPECT_THROW(middle.sin(), c10::Error);
    y = middle.sin().sum();
  }
  software::fail_copy_after(0);
  EXPECT_THROW(grad({y}, {x}, {}, true), c10::Error);
  EXPECT_TRUE(at::allclose(grad({y}, {x})[0].cpu(),
                           2 * (2 * x.detach().cpu()).cos(), 1e-12));
  y.reset();
  EXPECT_EQ(store->statistics().live_bytes, 0);
}

TEST(SaveOnCpu, GraphsThatNobodyRunsBackward) {
  software::reset(Order::kLazy);
  const at::Tensor x = device_leaf({200});
  const int64_t before = software::live_bytes();
  const auto store = host_store();
  {
    const SaveOnCpu offload(SaveOnCpuOptions().store(store));
    // exp() saves its own output, whose node owns what is stored.
    const at::Tensor y = (x * 2).exp().exp();
  }
  EXPECT_EQ(store->statistics().live_bytes, 0);
  software::finish();
  store->trim();
  EXPECT_LE(software::live_bytes(), before);
}

TEST(SaveOnCpu, OneStoreForSeveralThreads) {
  software::reset(Order::kRandom, 12);
  const auto store = host_store();
  const at::Tensor start = at::linspace(-1, 1, 300, at::kDouble);
  const auto loss = [](const at::Tensor& x) {
    return (x * 2).sin().exp().tanh().sum();
  };
  const at::Tensor x = device_leaf(start);
  const at::Tensor expected = grad({loss(x)}, {x})[0].cpu();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        const at::Tensor own = device_leaf(start);
        at::Tensor y;
        {
          const SaveOnCpu offload(SaveOnCpuOptions().store(store));
          y = loss(own);
        }
        EXPECT_TRUE(at::equal(grad({y}, {own})[0].cpu(), expected));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(store->statistics().live_bytes, 0);
}

TEST(SaveOnCpu, OptionsAreChecked) {
  EXPECT_THAT(error_of([] { SaveOnCpuOptions().min_bytes(-1); }),
              HasSubstr("[save_on_cpu] min_bytes is -1"));
}

}  // namespace
}  // namespace remat
