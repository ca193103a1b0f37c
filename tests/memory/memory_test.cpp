#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "remat/base/error.h"
#include "remat/memory/meter.h"
#include "remat/memory/process.h"
#include "remat/memory/threads.h"

namespace remat {
namespace {

TEST(MemoryMeter, CountsLiveAndPeakBytes) {
  MemoryMeter meter;
  {
    const at::Tensor a = at::empty({1024}, at::kFloat);
    EXPECT_EQ(meter.live_bytes(), 4096);
    const at::Tensor b = at::empty({2048}, at::kFloat);
    EXPECT_EQ(meter.live_bytes(), 12288);
    EXPECT_EQ(meter.allocations(), 2);
  }
  EXPECT_EQ(meter.live_bytes(), 0);
  EXPECT_EQ(meter.peak_bytes(), 12288);
  meter.reset_peak();
  EXPECT_EQ(meter.peak_bytes(), 0);
}

TEST(MemoryMeter, OnlyWhileItLives) {
  const at::Tensor before = at::empty({1024}, at::kFloat);
  const MemoryMeter meter;
  EXPECT_EQ(meter.live_bytes(), 0);
}

// libtorch remembers what was reported of an address, also after the block went
// unreported: another block there must not count when it goes.
TEST(MemoryMeter, OlderMemoryIsNotSubtracted) {
  int same_address = 0;
  for (int i = 0; i < 20; ++i) {
    at::Tensor reported;
    {
      const MemoryMeter first;
      reported = at::empty({1 << 16}, at::kByte);
    }
    const void* const address = reported.data_ptr();
    reported.reset();
    at::Tensor older = at::empty({1 << 16}, at::kByte);
    same_address += older.data_ptr() == address ? 1 : 0;
    const MemoryMeter second;
    older.reset();
    EXPECT_EQ(second.live_bytes(), 0);
    const at::Tensor own = at::empty({1 << 16}, at::kByte);
    EXPECT_EQ(second.live_bytes(), 1 << 16);
    EXPECT_EQ(second.peak_bytes(), 1 << 16);
  }
  EXPECT_GT(same_address, 0);
}

TEST(MemoryMeter, CountsByPurpose) {
  MemoryMeter meter;
  at::Tensor weight, activation;
  {
    const MemoryScope forward(MemoryTag::kActivations, "layer 0");
    weight = at::empty({100}, at::kByte);
    activation = at::empty({50}, at::kByte);
  }
  set_memory_owner(weight.storage().data(), memory_owner(MemoryTag::kWeights));
  EXPECT_EQ(meter.live_bytes(MemoryTag::kWeights), 100);
  EXPECT_EQ(meter.live_bytes(MemoryTag::kActivations), 50);
  activation.reset();
  EXPECT_EQ(meter.live_bytes(MemoryTag::kActivations), 0);
  meter.reset_peak();
  EXPECT_EQ(meter.peak_bytes(MemoryTag::kWeights), 100);
  EXPECT_EQ(meter.peak_bytes(MemoryTag::kActivations), 0);
  ASSERT_EQ(meter.ledger().holders().size(), 1u);
  EXPECT_EQ(meter.ledger().holders()[0].owner,
            memory_owner(MemoryTag::kWeights));
}

TEST(MemoryMeter, CountsTheDeviceThatItIsFor) {
  const MemoryMeter meter(c10::DeviceType::PrivateUse1);
  const at::Tensor on_cpu = at::empty({1024}, at::kFloat);
  EXPECT_EQ(meter.live_bytes(), 0);
  int block = 0;
  for (const int index : {0, 1}) {
    const c10::Device device(c10::DeviceType::PrivateUse1,
                             static_cast<c10::DeviceIndex>(index));
    c10::reportMemoryUsageToProfiler(&block + index, 640, 640, 640, device);
  }
  EXPECT_EQ(meter.live_bytes(), 1280);
  c10::reportMemoryUsageToProfiler(
      &block, -640, 0, 0, c10::Device(c10::DeviceType::PrivateUse1, 0));
  EXPECT_EQ(meter.live_bytes(), 640);
  EXPECT_EQ(meter.peak_bytes(), 1280);
}

TEST(Process, PeakCoversWhatWasTouched) {
  constexpr int64_t kBytes = 64 << 20;
  // In this order: asking may touch a page.
  const int64_t resident = resident_bytes();
  const int64_t before = peak_resident_bytes();
  EXPECT_LE(resident, before);
  const at::Tensor touched = at::ones({kBytes}, at::kByte);
  EXPECT_GE(resident_bytes(), kBytes);
  EXPECT_GE(peak_resident_bytes(), before);
}

TEST(Threads, AreSetAndChecked) {
  set_compute_threads(1);
  EXPECT_EQ(at::get_num_threads(), 1);
  EXPECT_GE(default_compute_threads(), 1);
  set_compute_threads(default_compute_threads());
  EXPECT_EQ(at::get_num_threads(), default_compute_threads());
  EXPECT_THROW(set_compute_threads(0), UsageError);
  EXPECT_THROW(set_compute_threads(100000), UsageError);
}

TEST(Process, AvailableIsBelowWhatThereIs) {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  EXPECT_GT(available_bytes(), 0);
  EXPECT_LT(available_bytes(), pages * sysconf(_SC_PAGESIZE) * 16);
}

}  // namespace
}  // namespace remat
