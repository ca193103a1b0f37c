#include "remat/memory/meter.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>

namespace remat {
namespace {

// libtorch 1.13 reports totals as int64_t, later versions as size_t: one of
// the two overloads overrides, the other is never called.
struct Counter final : c10::MemoryReportingInfoBase {
  // NOLINTNEXTLINE(modernize-use-override)
  void reportMemoryUsage(void*, int64_t bytes, int64_t, int64_t,
                         c10::Device device) {
    count(bytes, device);
  }
  // NOLINTNEXTLINE(modernize-use-override)
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t,
                         c10::Device device) {
    count(bytes, device);
  }
  bool memoryProfilingEnabled() const override { return true; }

  void count(int64_t bytes, c10::Device device) {
    if (device.type() != c10::DeviceType::CPU) {
      return;
    }
    allocations += bytes > 0 ? 1 : 0;
    const int64_t now = live += bytes;
    int64_t highest = peak;
    while (now > highest && !peak.compare_exchange_weak(highest, now)) {
    }
  }

  // The object is shared with threads that inherit this thread's state.
  std::atomic<int64_t> live{0};
  std::atomic<int64_t> peak{0};
  std::atomic<int64_t> allocations{0};
};

}  // namespace

struct MemoryMeter::Impl {
  std::shared_ptr<Counter> counter = std::make_shared<Counter>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, counter};
};

MemoryMeter::MemoryMeter() : impl_(std::make_unique<Impl>()) {}
MemoryMeter::~MemoryMeter() = default;

int64_t MemoryMeter::live_bytes() const { return impl_->counter->live; }

int64_t MemoryMeter::peak_bytes() const { return impl_->counter->peak; }

void MemoryMeter::reset_peak() {
  impl_->counter->peak = impl_->counter->live.load();
}

int64_t MemoryMeter::allocations() const { return impl_->counter->allocations; }

}  // namespace remat
