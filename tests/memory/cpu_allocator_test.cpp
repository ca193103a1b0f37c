#include "remat/memory/cpu_allocator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "remat/base/error.h"
#include "remat/memory/meter.h"
#include "remat/memory/spiller.h"

namespace remat {
namespace {

// Other tests of this binary run with it too, if they run later.
class CpuAllocator : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    before_ = at::full({1 << 20}, 3.0, at::kFloat);
    EXPECT_EQ(cpu_allocator_stats().allocations, 0);
    install_cpu_allocator();
    install_cpu_allocator();
  }
  static at::Tensor before_;
};

at::Tensor CpuAllocator::before_;

TEST_F(CpuAllocator, HoldsLargeTensorsOnly) {
  const PageArenaStats at_first = cpu_allocator_stats();
  {
    const at::Tensor small = at::ones({1000}, at::kFloat);
    EXPECT_EQ(cpu_allocator_stats().live_bytes, at_first.live_bytes);
    const at::Tensor large = at::ones({100'000}, at::kFloat);
    EXPECT_EQ(cpu_allocator_stats().live_bytes - at_first.live_bytes, 401'408);
    EXPECT_EQ(large.sum().item<double>(), 100'000);
    EXPECT_EQ(small.sum().item<double>(), 1000);
  }
  EXPECT_EQ(cpu_allocator_stats().live_bytes, at_first.live_bytes);
  EXPECT_EQ(at::empty({0}).numel(), 0);
}

TEST_F(CpuAllocator, NextTensorOfTheSizeIsTheSameMemory) {
  const void* first = at::empty({300'000}, at::kFloat).data_ptr();
  const int64_t populated = cpu_allocator_stats().populated_bytes;
  const at::Tensor second = at::empty({300'000}, at::kFloat);
  EXPECT_EQ(second.data_ptr(), first);
  EXPECT_EQ(cpu_allocator_stats().populated_bytes, populated);
}

TEST_F(CpuAllocator, MeterCountsExactBytes) {
  MemoryMeter meter;
  {
    const at::Tensor large = at::empty({100'001}, at::kFloat);
    const at::Tensor small = at::empty({10}, at::kFloat);
    EXPECT_EQ(meter.live_bytes(), 400'044);
    EXPECT_EQ(meter.allocations(), 2);
  }
  EXPECT_EQ(meter.live_bytes(), 0);
  EXPECT_EQ(meter.peak_bytes(), 400'044);
}

TEST_F(CpuAllocator, MeterCountsAllThreads) {
  const MemoryMeter meter;
  at::Tensor large, small;
  std::thread([&] {
    const MemoryScope scope(MemoryTag::kOptimizer);
    large = at::empty({100'001}, at::kFloat);
    small = at::empty({10}, at::kFloat);
  }).join();
  EXPECT_EQ(meter.live_bytes(MemoryTag::kOptimizer), 400'044);
  EXPECT_EQ(meter.allocations(), 2);
  std::thread([&] { large.reset(); }).join();
  EXPECT_EQ(meter.live_bytes(), 40);
}

// Room for `bytes` more large tensors while it lives.
class Limit {
 public:
  explicit Limit(int64_t bytes) {
    release_cached_cpu_memory();
    set_cpu_allocator_limit(cpu_allocator_stats().live_bytes + bytes);
  }
  ~Limit() { set_cpu_allocator_limit(INT64_MAX); }
};

constexpr int64_t kMiB = 1 << 20;

TEST_F(CpuAllocator, PastTheLimitNamesWhatHoldsTheMemory) {
  const MemoryScope layer(MemoryTag::kActivations, "layer 7");
  const at::Tensor held = at::empty({3 * kMiB}, at::kByte);
  const Limit limit(2 * kMiB);
  const at::Tensor fits = at::empty({2 * kMiB}, at::kByte);
  try {
    at::empty({kMiB}, at::kByte);
    FAIL() << "it is past the limit";
  } catch (const BudgetError& error) {
    EXPECT_EQ(error.missing_bytes(), kMiB);
    const std::string text = error.what();
    EXPECT_NE(text.find("another one needs 1.00 MiB: 1.00 MiB are missing"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("\n         activations  5.00 MiB: layer 7 5.00 MiB"),
              std::string::npos)
        << text;
  }
}

TEST_F(CpuAllocator, AsksSpillersBeforeItFails) {
  const Limit limit(8 * kMiB);
  std::vector<at::Tensor> spillable, kept;
  for (int i = 0; i < 4; ++i) {
    spillable.push_back(at::empty({kMiB}, at::kByte));
    kept.push_back(at::empty({kMiB}, at::kByte));
  }
  std::vector<int64_t> asked;
  {
    const MemorySpiller never([](int64_t) { return 0; });
    const MemorySpiller spiller([&](int64_t bytes) -> int64_t {
      asked.push_back(bytes);
      int64_t freed = 0;
      while (freed < bytes && !spillable.empty()) {
        freed += static_cast<int64_t>(spillable.back().nbytes());
        spillable.pop_back();
        // What it needs itself; past the limit nobody is asked again.
        EXPECT_EQ(at::ones({kMiB}, at::kByte)[0].item<int>(), 1);
        EXPECT_THROW(at::empty({16 * kMiB}, at::kByte), BudgetError);
      }
      return freed;
    });
    kept.push_back(at::ones({2 * kMiB}, at::kByte));
    EXPECT_EQ(asked, std::vector<int64_t>{2 * kMiB});
    EXPECT_EQ(spillable.size(), 2u);
    EXPECT_THROW(at::empty({3 * kMiB}, at::kByte), BudgetError);
    EXPECT_TRUE(spillable.empty());
    kept.push_back(at::ones({2 * kMiB}, at::kByte));
  }
  const size_t before = asked.size();
  EXPECT_THROW(at::empty({kMiB}, at::kByte), BudgetError);
  EXPECT_EQ(asked.size(), before);
}

// It says that it freed memory, and did not.
TEST_F(CpuAllocator, AMistakenSpillerDoesNotHangTheAllocation) {
  const Limit limit(kMiB);
  int asked = 0;
  const MemorySpiller mistaken([&](int64_t bytes) {
    ++asked;
    return bytes;
  });
  EXPECT_THROW(at::empty({2 * kMiB}, at::kByte), BudgetError);
  EXPECT_GT(asked, 1);
  EXPECT_LT(asked, 100);
}

TEST_F(CpuAllocator, ASpillersExceptionIsTheAllocations) {
  const Limit limit(kMiB);
  const MemorySpiller full(
      [](int64_t) -> int64_t { throw Error("[store] the disk is full"); });
  try {
    at::empty({2 * kMiB}, at::kByte);
    FAIL() << "it is past the limit";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[store] the disk is full");
  }
  EXPECT_EQ(at::ones({kMiB}, at::kByte)[0].item<int>(), 1);
}

// A storage grows by the allocator that it began with.
TEST_F(CpuAllocator, LeavesOlderTensorsAlone) {
  const int64_t live = cpu_allocator_stats().live_bytes;
  before_.resize_({2 << 20});
  EXPECT_EQ(before_[(1 << 20) - 1].item<double>(), 3);
  before_.reset();
  EXPECT_EQ(cpu_allocator_stats().live_bytes, live);
}

TEST_F(CpuAllocator, HasTheRawInterface) {
  const int64_t live = cpu_allocator_stats().live_bytes;
  c10::Allocator* allocator = c10::GetAllocator(c10::DeviceType::CPU);
  for (const size_t bytes : {size_t{100}, size_t{1} << 20}) {
    auto* block = static_cast<char*>(allocator->raw_allocate(bytes));
    block[bytes - 1] = 1;
    allocator->raw_deallocate(block);
  }
  EXPECT_EQ(cpu_allocator_stats().live_bytes, live);
}

TEST_F(CpuAllocator, SaysWhenThereIsNoMemory) {
  EXPECT_THROW(at::empty({int64_t{1} << 46}, at::kByte), Error);
  EXPECT_EQ(at::ones({100'000}).sum().item<double>(), 100'000);
}

}  // namespace
}  // namespace remat
