// Who can free memory when the limit is reached.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace remat {
namespace detail {
struct SpillerEntry;
}

// While it lives, its function is asked for memory before a large tensor fails
// for the limit of the CPU allocator: it moves what waits elsewhere, say to
// disk, and frees it.
class MemorySpiller {
 public:
  // spill(bytes): frees so many bytes of large tensors, or what it can, and
  // returns how many; 0 if there is nothing to free. It runs in the thread that
  // allocates, and in one at a time. It may allocate where that fits; for its
  // own allocations nobody is asked. Its exceptions are the allocation's.
  explicit MemorySpiller(std::function<int64_t(int64_t bytes)> spill);

  // Waits for a call that runs in another thread.
  ~MemorySpiller();
  MemorySpiller(const MemorySpiller&) = delete;
  MemorySpiller& operator=(const MemorySpiller&) = delete;

 private:
  const std::shared_ptr<detail::SpillerEntry> entry_;
};

namespace detail {

// Asks the spillers, those that came last first, until they have freed so many
// bytes; returns how many they did. 0 inside a spiller.
int64_t spill_memory(int64_t bytes);

}  // namespace detail
}  // namespace remat
