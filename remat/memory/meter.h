// Counts the live bytes of CPU tensors.
#pragma once

#include <cstdint>
#include <memory>

namespace remat {

// While it lives, the tensor memory that this thread allocates and frees is
// counted, through c10's memory reporting. One meter a thread at a time: it
// takes the place of an active profiler. What other threads allocate is not
// seen; on the CPU, forward and backward run in the caller's thread.
class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  // Bytes allocated since construction and not freed yet. Older memory that is
  // freed is not subtracted.
  int64_t live_bytes() const;

  // The highest live_bytes() since construction or the last reset_peak().
  int64_t peak_bytes() const;
  void reset_peak();

  // How many allocations there were.
  int64_t allocations() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace remat
