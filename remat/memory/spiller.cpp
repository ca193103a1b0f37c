#include "remat/memory/spiller.h"

#include <mutex>
#include <utility>
#include <vector>

namespace remat {
namespace detail {

struct SpillerEntry {
  // Recursive: what a spiller frees may own it.
  std::recursive_mutex mutex;
  std::function<int64_t(int64_t)> spill;
  bool is_gone = false;
};

namespace {

struct Spillers {
  std::mutex mutex;
  std::vector<std::shared_ptr<SpillerEntry>> entries;
};

// Never destroyed: tensors may be allocated after every static object is gone.
Spillers& spillers() {
  static auto* const all = new Spillers;
  return *all;
}

thread_local bool is_spilling = false;

struct SpillingScope {
  SpillingScope() { is_spilling = true; }
  ~SpillingScope() { is_spilling = false; }
};

}  // namespace

int64_t spill_memory(int64_t bytes) {
  if (is_spilling) {
    return 0;
  }
  const SpillingScope spilling;
  std::vector<std::shared_ptr<SpillerEntry>> entries;
  {
    const std::lock_guard lock(spillers().mutex);
    entries = spillers().entries;
  }
  int64_t freed = 0;
  for (auto entry = entries.rbegin(); entry != entries.rend() && freed < bytes;
       ++entry) {
    const std::lock_guard lock((*entry)->mutex);
    if (!(*entry)->is_gone) {
      freed += (*entry)->spill(bytes - freed);
    }
  }
  return freed;
}

}  // namespace detail

MemorySpiller::MemorySpiller(std::function<int64_t(int64_t bytes)> spill)
    : entry_(std::make_shared<detail::SpillerEntry>()) {
  entry_->spill = std::move(spill);
  const std::lock_guard lock(detail::spillers().mutex);
  detail::spillers().entries.push_back(entry_);
}

MemorySpiller::~MemorySpiller() {
  {
    const std::lock_guard lock(detail::spillers().mutex);
    std::erase(detail::spillers().entries, entry_);
  }
  const std::lock_guard lock(entry_->mutex);
  entry_->is_gone = true;
}

}  // namespace remat
