#include "remat/memory/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <cstring>

#include "remat/base/error.h"
#include "remat/memory/spiller.h"

namespace remat {
namespace {

// Smaller blocks waste too much of their last page, and are no burden on the C
// library.
constexpr size_t kLargeBytes = size_t{64} << 10;

// Never destroyed: tensors may outlive every static object.
std::atomic<PageArena*> arena{nullptr};

constexpr const char* kTableIndent = "         ";

void free_block(void* block) {
  if (block == nullptr) {
    return;
  }
  c10::profiledCPUMemoryReporter().Delete(block);
  detail::tell_freed(block);
  PageArena& large = *arena;
  if (large.owns(block)) {
    cpu_memory_ledger().freed(block);
    large.free(block);
  } else {
    c10::free_cpu(block);
  }
}

// Spillers are asked as long as they free something, and in vain a few times
// more: another thread may have taken what they freed.
void* allocate_large(size_t bytes) {
  constexpr int kMostVainRounds = 10;
  PageArena& large = *arena;
  for (int vain_rounds = 0;;) {
    try {
      void* const block = large.allocate(bytes);
      cpu_memory_ledger().allocated(block, static_cast<int64_t>(bytes),
                                    current_memory_owner());
      return block;
    } catch (const BudgetError& error) {
      const int64_t live = large.stats().live_bytes;
      const int64_t spilled = detail::spill_memory(error.missing_bytes());
      vain_rounds += large.stats().live_bytes < live ? 0 : 1;
      if (spilled <= 0 || vain_rounds > kMostVainRounds) {
        throw BudgetError(str(error.what(), "\n",
                              usage_table(cpu_memory_ledger(), kTableIndent)),
                          error.missing_bytes());
      }
    }
  }
}

c10::DataPtr allocate_block(size_t bytes) {
  void* block = nullptr;
  if (bytes >= kLargeBytes) {
    block = allocate_large(bytes);
  } else if (bytes > 0) {
    block = c10::alloc_cpu(bytes);
  }
  if (block != nullptr) {
    c10::profiledCPUMemoryReporter().New(block, bytes);
    detail::tell_allocated(block, static_cast<int64_t>(bytes));
  }
  return {block, block, &free_block, c10::Device(c10::DeviceType::CPU)};
}

class CpuAllocator final : public c10::Allocator {
 public:
  // Constant in libtorch 1.13 and not in later versions: one of the two
  // overrides, the other is never called.
  // NOLINTNEXTLINE(modernize-use-override)
  c10::DataPtr allocate(size_t bytes) const { return allocate_block(bytes); }
  // NOLINTNEXTLINE(modernize-use-override)
  c10::DataPtr allocate(size_t bytes) { return allocate_block(bytes); }

  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }

  // Asked for by later versions only.
  // NOLINTNEXTLINE(modernize-use-override)
  void copy_data(void* to, const void* from, size_t bytes) const {
    std::memcpy(to, from, bytes);
  }
};

}  // namespace

void install_cpu_allocator() {
  if (arena.load() != nullptr) {
    return;
  }
  arena = new PageArena;
  // Above libtorch's own, of priority 0.
  c10::SetCPUAllocator(new CpuAllocator, /*priority=*/1);
}

bool is_cpu_allocator_installed() { return arena.load() != nullptr; }

MemoryLedger& cpu_memory_ledger() {
  static auto* const ledger = [] {
    auto* const all = new MemoryLedger;
    detail::attach(all, /*hears_allocator=*/false);
    return all;
  }();
  return *ledger;
}

void set_cpu_allocator_limit(int64_t resident_bytes, int64_t process_bytes) {
  PageArena* const installed = arena;
  if (installed == nullptr) {
    fail_usage("memory",
               "a limit needs the caching allocator; call "
               "install_cpu_allocator() first");
  }
  installed->set_limit(resident_bytes, process_bytes);
}

void release_cached_cpu_memory() {
  PageArena* const installed = arena;
  if (installed != nullptr) {
    installed->release_cached();
  }
}

PageArenaStats cpu_allocator_stats() {
  PageArena* const installed = arena;
  return installed == nullptr ? PageArenaStats{} : installed->stats();
}

}  // namespace remat
