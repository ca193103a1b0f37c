#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "remat/base/error.h"
#include "remat/memory/glibc_tuning.h"
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

TEST(Process, PeakCoversWhatWasTouched) {
  constexpr int64_t kBytes = 64 << 20;
  const int64_t before = peak_resident_bytes();
  EXPECT_LE(resident_bytes(), before);
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

// A freed block stays with the process: the next one of its size faults no
// page in.
TEST(GlibcTuning, KeepsFreedMemory) {
  if (!tune_glibc_allocator()) {
    GTEST_FAIL() << "glibc refused its options";
  }
  constexpr size_t kBytes = 100u << 20;
  const auto touch = [] {
    volatile char* block = static_cast<char*>(std::malloc(kBytes));
    for (size_t i = 0; i < kBytes; i += 4096) {
      block[i] = 1;
    }
    std::free(const_cast<char*>(block));
  };
  touch();
  const int64_t resident = resident_bytes();
  EXPECT_GE(resident, static_cast<int64_t>(kBytes));
  touch();
  EXPECT_LT(resident_bytes() - resident, 1 << 20);
}

}  // namespace
}  // namespace remat
