#include "remat/memory/meter.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "remat/memory/cpu_allocator.h"

namespace remat {
namespace {

// libtorch 1.13 reports totals as int64_t, later versions as size_t: one of
// the two overloads overrides, the other is never called. Shared with threads
// that inherit this thread's state.
class Counter final : public c10::MemoryReportingInfoBase {
 public:
  explicit Counter(c10::DeviceType device)
      : device_(device),
        is_told_(device == c10::DeviceType::CPU &&
                 is_cpu_allocator_installed()) {
    detail::attach(&ledger, is_told_);
  }
  ~Counter() override { detail::detach(&ledger); }

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

  MemoryLedger ledger;

 private:
  // The size that comes with the end of a block is that of whatever was last
  // reported at its address: the ledger has its own.
  void count(void* block, int64_t bytes, c10::Device device) {
    if (device.type() != device_ || is_told_) {
      return;
    }
    if (bytes > 0) {
      ledger.allocated(block, bytes, current_memory_owner());
    } else {
      ledger.freed(block);
    }
  }

  const c10::DeviceType device_;
  // By the allocator, of all threads.
  const bool is_told_;
};

}  // namespace

struct MemoryMeter::Impl {
  explicit Impl(c10::DeviceType device)
      : counter(std::make_shared<Counter>(device)) {}

  std::shared_ptr<Counter> counter;
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, counter};
};

MemoryMeter::MemoryMeter(c10::DeviceType device)
    : impl_(std::make_unique<Impl>(device)) {}
MemoryMeter::~MemoryMeter() = default;

int64_t MemoryMeter::live_bytes() const {
  return impl_->counter->ledger.live().total;
}

int64_t MemoryMeter::live_bytes(MemoryTag tag) const {
  return impl_->counter->ledger.live().of(tag);
}

int64_t MemoryMeter::peak_bytes() const {
  return impl_->counter->ledger.at_peak().total;
}

int64_t MemoryMeter::peak_bytes(MemoryTag tag) const {
  return impl_->counter->ledger.at_peak().of(tag);
}

void MemoryMeter::reset_peak() { impl_->counter->ledger.reset_peak(); }

int64_t MemoryMeter::allocations() const {
  return impl_->counter->ledger.allocations();
}

MemoryLedger& MemoryMeter::ledger() { return impl_->counter->ledger; }

}  // namespace remat
