#include "remat/memory/cpu_allocator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "remat/base/error.h"
#include "remat/memory/meter.h"

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
