// Which blocks of memory are alive, and whose they are.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "remat/memory/owner.h"

namespace remat {

// Bytes, in all and by what they are for.
struct MemoryUsage {
  int64_t total = 0;
  std::array<int64_t, kMemoryTags> by_tag = {};

  int64_t of(MemoryTag tag) const { return by_tag[static_cast<size_t>(tag)]; }
};

struct MemoryHolder {
  MemoryOwner owner;
  int64_t bytes = 0;
  int64_t blocks = 0;
};

// A block came (bytes > 0) or went (bytes < 0).
struct MemoryEvent {
  double seconds = 0;  // since the recording began
  int64_t bytes = 0;
  MemoryOwner owner;
};

struct MemoryTimeline {
  // What was alive when the recording began.
  MemoryUsage before;
  std::vector<MemoryEvent> events;
  // Events beyond the most that were to be recorded.
  int64_t dropped = 0;
};

// Thread-safe.
class MemoryLedger {
 public:
  // bytes > 0. An address that is alive already begins anew.
  void allocated(const void* block, int64_t bytes, MemoryOwner owner);

  // Unknown blocks, older than the ledger, are passed over; so are they by
  // set_owner(), for a block whose use is known only later.
  void freed(const void* block);
  void set_owner(const void* block, MemoryOwner owner);

  MemoryUsage live() const;
  // When the total was the highest since the beginning or the last
  // reset_peak().
  MemoryUsage at_peak() const;
  void reset_peak();
  int64_t allocations() const;

  // Owners with memory, those with the most first.
  std::vector<MemoryHolder> holders() const;

  // From now on events are kept, up to so many: 32 bytes each. Any earlier
  // recording is dropped; 0 records nothing more.
  void record(size_t most_events);
  MemoryTimeline timeline() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Block {
    int64_t bytes = 0;
    MemoryOwner owner;
  };

  void add(MemoryOwner owner, int64_t bytes);
  void note(MemoryOwner owner, int64_t bytes);

  mutable std::mutex mutex_;
  std::unordered_map<const void*, Block> blocks_;
  MemoryUsage live_;
  MemoryUsage at_peak_;
  int64_t allocations_ = 0;
  size_t most_events_ = 0;
  Clock::time_point recording_since_;
  MemoryTimeline timeline_;
};

// A line a tag, the largest first, with the parts that hold the most of it:
//   activations  312 MiB: layer 0 64.0 MiB, layer 1 64.0 MiB, 6 others
// Each line begins with the indent and ends without a line feed before the
// first and after the last. Empty without memory.
std::string usage_table(const MemoryLedger& ledger, const std::string& indent);

namespace detail {

// The ledger hears of set_memory_owner(); and, if it is to, of all memory of
// CPU tensors from the allocator of install_cpu_allocator().
void attach(MemoryLedger* ledger, bool hears_allocator);
void detach(MemoryLedger* ledger);
void tell_allocated(const void* block, int64_t bytes);
void tell_freed(const void* block);

}  // namespace detail

// For memory whose use is known only after it was allocated. block: where the
// memory of a tensor begins (its storage's data). Unknown blocks are passed
// over.
void set_memory_owner(const void* block, MemoryOwner owner);

}  // namespace remat
