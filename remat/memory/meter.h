// Counts the live bytes of tensors.
#pragma once

#include <c10/core/DeviceType.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "remat/memory/ledger.h"

namespace remat {

// While it lives, tensor memory on one kind of device is counted, all its
// devices together, through c10's memory reporting: what this thread allocates
// and frees, and threads that take over its state (as autograd's do for a
// backward). On the CPU it is all threads of the process, if
// install_cpu_allocator() was called before. One meter a thread at a time: it
// takes the place of an active profiler.
class MemoryMeter {
 public:
  explicit MemoryMeter(c10::DeviceType device = c10::DeviceType::CPU);
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  // Bytes allocated since construction and not freed yet, in all or of one
  // purpose (MemoryScope). Older memory that is freed is not subtracted.
  int64_t live_bytes() const;
  int64_t live_bytes(MemoryTag tag) const;

  // The highest live_bytes() since construction or the last reset_peak(); with
  // a tag, its share then.
  int64_t peak_bytes() const;
  int64_t peak_bytes(MemoryTag tag) const;
  void reset_peak();

  // How many allocations there were.
  int64_t allocations() const;

  // For more: holders, the recording of a timeline, usage_table().
  MemoryLedger& ledger();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace remat
