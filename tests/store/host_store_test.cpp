#include "remat/store/host_store.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "remat/base/error.h"
#include "tests/device/software_device.h"

namespace remat {
namespace {

using software::kDevice;
using software::Order;
using ::testing::HasSubstr;

constexpr Order kOrders[] = {Order::kLazy, Order::kSideFirst,
                             Order::kComputeFirst, Order::kRandom};

at::Tensor numbers(int64_t count) { return at::arange(count, at::kDouble); }

at::Tensor on_device(const at::Tensor& tensor) { return tensor.to(kDevice); }

// Without prefetch, what is counted is what is asked for.
HostStoreOptions plain_options() { return HostStoreOptions().prefetch(0); }

TEST(HostStore, BringsBackValuesAndLayout) {
  for (const Order order : kOrders) {
    for (const bool asynchronous : {true, false}) {
      software::reset(order, 1);
      HostStore store(HostStoreOptions().asynchronous(asynchronous));
      const at::Tensor x = on_device(numbers(24).view({2, 3, 4}));
      const std::vector<at::Tensor> tensors{
          x,
          x.transpose(0, 2),
          x.select(1, 1).narrow(1, 1, 2),
          x.unsqueeze(0).expand({5, 2, 3, 4}),
          at::view_as_complex(x.reshape({12, 2})).conj(),
          x.to(at::kInt),
          x[0][0][0],
          at::empty({0, 3}, x.options()),
          at::empty_strided({2, 0}, {7, 1}, x.options())};
      for (const at::Tensor& tensor : tensors) {
        const at::Tensor back = store.put(tensor)->get();
        EXPECT_EQ(back.device(), kDevice);
        EXPECT_EQ(back.dtype(), tensor.dtype());
        EXPECT_EQ(back.sizes(), tensor.sizes());
        EXPECT_EQ(back.strides(), tensor.strides());
        EXPECT_EQ(back.is_conj(), tensor.is_conj());
        EXPECT_FALSE(back.is_same(tensor));
        EXPECT_TRUE(at::equal(back.cpu(), tensor.cpu())) << tensor.sizes();
      }
      EXPECT_EQ(store.statistics().live_bytes, 0);
    }
  }
}

// The producer, other work in the freed memory, the way back, the consumer:
// in whatever order the waits leave open, and without the host waiting.
TEST(HostStore, KeepsTheOrderThatCopiesNeed) {
  for (const Order order : kOrders) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      for (const int64_t in_flight : {0, 1, 4}) {
        software::reset(order, seed);
        HostStore store(
            HostStoreOptions().copies_in_flight(in_flight).prefetch(1));
        const at::Tensor x = on_device(numbers(64));
        const int64_t waits = software::host_waits();
        std::vector<std::shared_ptr<const StoredTensor>> stored;
        std::vector<at::Tensor> others;
        for (int i = 0; i < 6; ++i) {
          stored.push_back(store.put(x * (i + 2)));
          others.push_back(x * 100 + i);
        }
        std::vector<at::Tensor> results(6);
        for (int i = 5; i >= 0; --i) {
          results[i] = stored[i]->get() + 1;
          stored[i].reset();
          others.push_back(x * 200 + i);
        }
        EXPECT_EQ(software::host_waits(), waits);
        EXPECT_GT(software::reused_blocks(), 0);
        for (int i = 0; i < 6; ++i) {
          EXPECT_TRUE(at::equal(results[i].cpu(), numbers(64) * (i + 2) + 1));
          EXPECT_TRUE(at::equal(others[i].cpu(), numbers(64) * 100 + i));
          EXPECT_TRUE(
              at::equal(others[6 + i].cpu(), numbers(64) * 200 + 5 - i));
        }
        EXPECT_EQ(store.statistics().live_bytes, 0);
        software::finish();
      }
    }
  }
}

// As long as two copies in flight at a time, and no longer.
TEST(HostStore, FreesTheSources) {
  software::reset(Order::kLazy);
  HostStore store(HostStoreOptions().copies_in_flight(2));
  const at::Tensor x = on_device(numbers(64));
  const int64_t before = software::live_bytes();
  std::vector<std::shared_ptr<const StoredTensor>> stored;
  for (int i = 0; i < 10; ++i) {
    stored.push_back(store.put(x + i));
    EXPECT_LE(software::live_bytes() - before, 2 * 64 * 8);
  }
  EXPECT_EQ(store.statistics().live_bytes, 10 * 64 * 8);
  software::finish();
  stored.push_back(store.put(x));
  EXPECT_EQ(software::live_bytes(), before);
}

TEST(HostStore, MovesAStorageOnce) {
  software::reset(Order::kLazy);
  HostStore store(plain_options());
  const at::Tensor x = on_device(numbers(12).view({3, 4}));
  const auto a = store.put(x);
  const auto b = store.put(x.t());
  const auto c = store.put(x.narrow(1, 0, 1));
  const auto d = store.put(at::view_as_complex(x.view({6, 2})));
  HostStoreStatistics statistics = store.statistics();
  EXPECT_EQ(statistics.tensors_put, 4);
  EXPECT_EQ(statistics.tensors_shared, 3);
  EXPECT_EQ(statistics.bytes_out, 96);
  EXPECT_EQ(statistics.live_bytes, 96);

  const at::Tensor back_a = a->get();
  const at::Tensor back_b = b->get();
  EXPECT_TRUE(back_a.storage().is_alias_of(back_b.storage()));
  EXPECT_TRUE(c->get().storage().is_alias_of(back_b.storage()));
  EXPECT_TRUE(
      at::equal(at::view_as_real(d->get()).view({3, 4}).cpu(), x.cpu()));
  EXPECT_EQ(store.statistics().copies_in, 1);
  EXPECT_EQ(store.statistics().bytes_in, 96);
}

// The views of a fused projection interleave: no one covers another.
TEST(HostStore, InterleavedViewsShareOneCopy) {
  software::reset(Order::kLazy);
  HostStore store(plain_options());
  const at::Tensor fused = on_device(numbers(300).view({10, 30}));
  std::vector<std::shared_ptr<const StoredTensor>> stored;
  for (const at::Tensor& part : fused.chunk(3, 1)) {
    stored.push_back(store.put(part));
  }
  EXPECT_EQ(store.statistics().bytes_out, 300 * 8);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::equal(stored[i]->get().cpu(), fused.cpu().chunk(3, 1)[i]));
  }
}

TEST(HostStore, MovesOnlyTheSpanOfASmallView) {
  software::reset(Order::kLazy);
  HostStore store(plain_options());
  const at::Tensor x = on_device(numbers(10000));
  const auto stored = store.put(x.narrow(0, 5003, 4));
  // 5003 * 8 is 24 more than a multiple of 64.
  EXPECT_EQ(store.statistics().bytes_out, 24 + 4 * 8);
  EXPECT_TRUE(
      at::equal(stored->get().cpu(), numbers(10000).slice(0, 5003, 5007)));
  // What it does not cover is another copy.
  const auto all = store.put(x);
  EXPECT_EQ(store.statistics().bytes_out, 24 + 4 * 8 + 80000);
  EXPECT_TRUE(at::equal(all->get().cpu(), numbers(10000)));
}

// trl#6241: an allocator gives the same address out again.
TEST(HostStore, AnotherTensorAtTheSameAddressIsNotTheSame) {
  software::reset(Order::kLazy);
  HostStore store(plain_options().copies_in_flight(0));
  const at::Tensor x = on_device(numbers(64));
  at::Tensor first = x * 2;
  const void* const address = first.data_ptr();
  const auto stored = store.put(first);
  first.reset();
  const at::Tensor second = x * 3;
  ASSERT_EQ(second.data_ptr(), address);
  const auto stored_second = store.put(second);
  EXPECT_EQ(store.statistics().tensors_shared, 0);
  EXPECT_TRUE(at::equal(stored->get().cpu(), numbers(64) * 2));
  EXPECT_TRUE(at::equal(stored_second->get().cpu(), numbers(64) * 3));
}

TEST(HostStore, AChangedTensorIsCopiedAgain) {
  software::reset(Order::kLazy);
  HostStore store(plain_options());
  const at::Tensor x = on_device(numbers(64)) * 2;
  const auto before = store.put(x);
  software::finish();
  x.add_(1);
  const auto after = store.put(x.view({8, 8}));
  EXPECT_EQ(store.statistics().tensors_shared, 0);
  EXPECT_TRUE(at::equal(before->get().cpu(), numbers(64) * 2));
  EXPECT_TRUE(at::equal(after->get().cpu().view({64}), numbers(64) * 2 + 1));
  // An alias with a counter of its own: nobody can say that it is unchanged.
  const at::Tensor alias = x.variable_data();
  const auto of_alias = store.put(alias);
  EXPECT_EQ(store.statistics().tensors_shared, 0);
  // Other memory in the same storage.
  x.storage().set_data_ptr(x.clone().storage().set_data_ptr({}));
  store.put(x);
  EXPECT_EQ(store.statistics().tensors_shared, 0);
}

TEST(HostStore, ReusesBuffersWhenNobodyReadsThem) {
  software::reset(Order::kComputeFirst);
  HostStore store(plain_options());
  const at::Tensor x = on_device(numbers(64));
  at::Tensor first_back;
  {
    const auto first = store.put(x * 2);
    first_back = first->get();
  }
  // Its copy in is still queued.
  EXPECT_EQ(store.statistics().pooled_bytes, 512);
  const auto second = store.put(x * 3);
  EXPECT_EQ(store.statistics().pooled_bytes, 512);
  EXPECT_TRUE(at::equal(first_back.cpu(), numbers(64) * 2));
  // Now it is not.
  const auto third = store.put(x * 4);
  EXPECT_EQ(store.statistics().pooled_bytes, 0);
  EXPECT_EQ(store.statistics().live_bytes, 1024);
  EXPECT_EQ(store.statistics().peak_live_bytes, 1024);
  EXPECT_TRUE(at::equal(second->get().cpu(), numbers(64) * 3));
  EXPECT_TRUE(at::equal(third->get().cpu(), numbers(64) * 4));
  software::finish();
}

TEST(HostStore, TrimGivesBuffersBack) {
  software::reset(Order::kLazy);
  HostStore store;
  store.put(on_device(numbers(64)));
  software::finish();
  EXPECT_EQ(store.statistics().pooled_bytes, 512);
  store.trim();
  EXPECT_EQ(store.statistics().pooled_bytes, 0);
}

TEST(HostStore, TensorsOutliveTheStore) {
  for (const Order order : kOrders) {
    software::reset(order, 5);
    std::shared_ptr<const StoredTensor> stored, dropped;
    {
      HostStore store;
      const at::Tensor x = on_device(numbers(64));
      stored = store.put(x * 2);
      dropped = store.put(x * 3);
    }
    dropped.reset();
    const at::Tensor back = stored->get();
    // The buffer must not be freed under the copy; here the host waits.
    stored.reset();
    EXPECT_TRUE(at::equal(back.cpu(), numbers(64) * 2));
    software::finish();
  }
}

TEST(HostStore, EachStreamGetsItsOwn) {
  for (const Order order : kOrders) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      software::reset(order, seed);
      HostStore store(HostStoreOptions().prefetch(2));
      const at::Tensor x = on_device(numbers(64));
      const auto a = store.put(x * 2);
      const auto b = store.put(x * 3);
      const at::Tensor on_first = b->get() + 1;  // prefetches a
      at::Tensor on_other;
      {
        const c10::StreamGuard guard(
            c10::impl::VirtualGuardImpl(at::kPrivateUse1)
                .getStreamFromGlobalPool(kDevice));
        on_other = a->get() + b->get();
        EXPECT_TRUE(at::equal(on_other.cpu(), numbers(64) * 5));
      }
      EXPECT_TRUE(at::equal(on_first.cpu(), numbers(64) * 3 + 1));
      software::finish();
    }
  }
}

TEST(HostStore, PrefetchedButNeverAskedFor) {
  for (const Order order : kOrders) {
    software::reset(order, 7);
    const at::Tensor x = on_device(numbers(64));
    const int64_t before = software::live_bytes();
    {
      HostStore store(HostStoreOptions().prefetch(1));
      auto a = store.put(x * 2);
      const auto b = store.put(x * 3);
      const at::Tensor back = b->get();
      EXPECT_EQ(store.statistics().copies_in, 2);
      a.reset();
      const at::Tensor other = x * 5;
      EXPECT_TRUE(at::equal(back.cpu(), numbers(64) * 3));
      EXPECT_TRUE(at::equal(other.cpu(), numbers(64) * 5));
    }
    EXPECT_EQ(software::live_bytes(), before);
    software::finish();
  }
}

TEST(HostStore, AFailedCopyLeavesNothingBehind) {
  for (const bool asynchronous : {true, false}) {
    software::reset(Order::kLazy);
    HostStore store(plain_options().asynchronous(asynchronous));
    const at::Tensor x = on_device(numbers(64));
    const int64_t before = software::live_bytes();
    software::fail_copy_after(0);
    EXPECT_THROW(store.put(x + 1), c10::Error);
    EXPECT_EQ(store.statistics().live_bytes, 0);
    EXPECT_EQ(software::live_bytes(), before);
    const auto stored = store.put(x + 1);
    software::fail_copy_after(0);
    EXPECT_THROW(stored->get(), c10::Error);
    EXPECT_TRUE(at::equal(stored->get().cpu(), numbers(64) + 1));
  }
}

TEST(HostStore, AFailedPrefetchIsNotSaid) {
  software::reset(Order::kLazy);
  HostStore store(HostStoreOptions().prefetch(1));
  const at::Tensor x = on_device(numbers(64));
  const auto a = store.put(x + 1);
  const auto b = store.put(x + 2);
  software::fail_copy_after(1);
  EXPECT_TRUE(at::equal(b->get().cpu(), numbers(64) + 2));
  EXPECT_TRUE(at::equal(a->get().cpu(), numbers(64) + 1));
}

TEST(HostStore, TensorsOfTheCpuAreCopied) {
  HostStore store(HostStoreOptions().pin_memory(false));
  const at::Tensor x = numbers(6).view({2, 3});
  const auto stored = store.put(x.t());
  x.zero_();
  EXPECT_TRUE(at::equal(stored->get(), numbers(6).view({2, 3}).t()));
  EXPECT_EQ(stored->get().strides(), x.t().strides());

  const at::Tensor sparse = at::eye(3, at::kDouble).to_sparse();
  const auto stored_sparse = store.put(sparse);
  EXPECT_TRUE(stored_sparse->get().is_sparse());
  EXPECT_TRUE(
      at::equal(stored_sparse->get().to_dense(), at::eye(3, at::kDouble)));
  EXPECT_EQ(store.statistics().live_bytes, 48 + 3 * (2 + 1) * 8);
}

TEST(HostStore, ManyThreads) {
  software::reset(Order::kRandom, 11);
  HostStore store;
  const at::Tensor x = on_device(numbers(64));
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&store, &x, thread] {
      for (int i = 0; i < 50; ++i) {
        const auto shared = store.put(x);
        const auto own = store.put(x * (thread + 2));
        EXPECT_TRUE(at::equal(own->get().cpu(), numbers(64) * (thread + 2)));
        EXPECT_TRUE(at::equal(shared->get().cpu(), numbers(64)));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(store.statistics().live_bytes, 0);
}

TEST(HostStore, OptionsAreChecked) {
  const auto text_of = [](const auto& action) -> std::string {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(text_of([] { HostStoreOptions().prefetch(-1); }),
              HasSubstr("[host_store] prefetch is -1"));
  EXPECT_THAT(text_of([] { HostStoreOptions().copies_in_flight(-2); }),
              HasSubstr("[host_store] copies_in_flight is -2"));
}

}  // namespace
}  // namespace remat
