#include "remat/memory/meter.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace remat {
namespace {

// libtorch 1.13 reports totals as int64_t, later versions as size_t: one of
// the two overloads overrides, the other is never called.
struct Counter final : c10::MemoryReportingInfoBase {
  // NOLINTNEXTLINE(modernize-use-override)
  void reportMemoryUsage(void* block, int64_t bytes, int64_t, int64_t,
                         c10::Device device) {
    count(block, bytes, device);
  }
  // NOLINTNEXTLINE(modernize-use-override)
  void reportMemoryUsage(void* block, int64_t bytes, size_t, size_t,
                         c10::Device device) {
    count(block, bytes, device);
  }
  bool memoryProfilingEnabled() const override { return true; }

  void count(void* block, int64_t bytes, c10::Device device) {
    if (device.type() != c10::DeviceType::CPU) {
      return;
    }
    const std::lock_guard lock(mutex);
    if (bytes > 0) {
      ++allocations;
      live += bytes;
      blocks.insert_or_assign(block, bytes);
      peak = std::max(peak, live);
    } else if (const auto own = blocks.find(block); own != blocks.end()) {
      live -= own->second;
      blocks.erase(own);
    }
  }

  // The object is shared with threads that inherit this thread's state.
  std::mutex mutex;
  // What was allocated here and is not freed yet. The size that comes with the
  // end of another block is that of whatever was last reported at its address.
  std::unordered_map<void*, int64_t> blocks;
  int64_t live = 0;
  int64_t peak = 0;
  int64_t allocations = 0;
};

}  // namespace

struct MemoryMeter::Impl {
  std::shared_ptr<Counter> counter = std::make_shared<Counter>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, counter};
};

MemoryMeter::MemoryMeter() : impl_(std::make_unique<Impl>()) {}
MemoryMeter::~MemoryMeter() = default;

int64_t MemoryMeter::live_bytes() const {
  const std::lock_guard lock(impl_->counter->mutex);
  return impl_->counter->live;
}

int64_t MemoryMeter::peak_bytes() const {
  const std::lock_guard lock(impl_->counter->mutex);
  return impl_->counter->peak;
}

void MemoryMeter::reset_peak() {
  const std::lock_guard lock(impl_->counter->mutex);
  impl_->counter->peak = impl_->counter->live;
}

int64_t MemoryMeter::allocations() const {
  const std::lock_guard lock(impl_->counter->mutex);
  return impl_->counter->allocations;
}

}  // namespace remat
