#include "remat/memory/ledger.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "remat/base/bytes.h"
#include "remat/base/error.h"

namespace remat {
namespace {

// Parts that a line of the table names.
constexpr size_t kNamedParts = 3;

struct Attached {
  std::mutex mutex;
  std::vector<MemoryLedger*> ledgers;
  // Of them, those that hear the allocator; how many, to be asked without the
  // lock.
  std::vector<MemoryLedger*> hearing;
  std::atomic<size_t> hearing_count{0};
};

// Never destroyed: tensors may be freed after every static object.
Attached& attached() {
  static auto* const all = new Attached;
  return *all;
}

template <class Tell>
void tell_hearing(const Tell& tell_one) {
  Attached& all = attached();
  if (all.hearing_count.load(std::memory_order_acquire) == 0) {
    return;
  }
  const std::lock_guard lock(all.mutex);
  for (MemoryLedger* const ledger : all.hearing) {
    tell_one(*ledger);
  }
}

}  // namespace

void MemoryLedger::add(MemoryOwner owner, int64_t bytes) {
  live_.total += bytes;
  live_.by_tag[static_cast<size_t>(owner.tag)] += bytes;
  if (live_.total > at_peak_.total) {
    at_peak_ = live_;
  }
}

void MemoryLedger::note(MemoryOwner owner, int64_t bytes) {
  if (most_events_ == 0) {
    return;
  }
  if (timeline_.events.size() >= most_events_) {
    ++timeline_.dropped;
    return;
  }
  timeline_.events.push_back(
      {std::chrono::duration<double>(Clock::now() - recording_since_).count(),
       bytes, owner});
}

void MemoryLedger::allocated(const void* block, int64_t bytes,
                             MemoryOwner owner) {
  const std::lock_guard lock(mutex_);
  Block& known = blocks_[block];
  if (known.bytes > 0) {
    add(known.owner, -known.bytes);
    note(known.owner, -known.bytes);
  }
  known = {bytes, owner};
  ++allocations_;
  add(owner, bytes);
  note(owner, bytes);
}

void MemoryLedger::freed(const void* block) {
  const std::lock_guard lock(mutex_);
  const auto known = blocks_.find(block);
  if (known == blocks_.end()) {
    return;
  }
  add(known->second.owner, -known->second.bytes);
  note(known->second.owner, -known->second.bytes);
  blocks_.erase(known);
}

void MemoryLedger::set_owner(const void* block, MemoryOwner owner) {
  const std::lock_guard lock(mutex_);
  const auto known = blocks_.find(block);
  if (known == blocks_.end() || known->second.owner == owner) {
    return;
  }
  const int64_t bytes = known->second.bytes;
  add(known->second.owner, -bytes);
  note(known->second.owner, -bytes);
  known->second.owner = owner;
  add(owner, bytes);
  note(owner, bytes);
}

MemoryUsage MemoryLedger::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

MemoryUsage MemoryLedger::at_peak() const {
  const std::lock_guard lock(mutex_);
  return at_peak_;
}

void MemoryLedger::reset_peak() {
  const std::lock_guard lock(mutex_);
  at_peak_ = live_;
}

int64_t MemoryLedger::allocations() const {
  const std::lock_guard lock(mutex_);
  return allocations_;
}

std::vector<MemoryHolder> MemoryLedger::holders() const {
  std::map<std::pair<MemoryTag, const std::string*>, MemoryHolder> by_owner;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [address, block] : blocks_) {
      MemoryHolder& holder = by_owner[{block.owner.tag, block.owner.part}];
      holder.owner = block.owner;
      holder.bytes += block.bytes;
      ++holder.blocks;
    }
  }
  std::vector<MemoryHolder> holders;
  for (const auto& [owner, holder] : by_owner) {
    holders.push_back(holder);
  }
  const auto text = [](const MemoryHolder& holder) {
    return holder.owner.part == nullptr ? std::string() : *holder.owner.part;
  };
  std::sort(holders.begin(), holders.end(),
            [&](const MemoryHolder& a, const MemoryHolder& b) {
              return a.bytes != b.bytes           ? a.bytes > b.bytes
                     : a.owner.tag != b.owner.tag ? a.owner.tag < b.owner.tag
                                                  : text(a) < text(b);
            });
  return holders;
}

void MemoryLedger::record(size_t most_events) {
  const std::lock_guard lock(mutex_);
  most_events_ = most_events;
  recording_since_ = Clock::now();
  if (most_events > 0) {
    timeline_ = {};
    timeline_.before = live_;
  }
}

MemoryTimeline MemoryLedger::timeline() const {
  const std::lock_guard lock(mutex_);
  return timeline_;
}

std::string usage_table(const MemoryLedger& ledger, const std::string& indent) {
  const std::vector<MemoryHolder> holders = ledger.holders();
  struct Line {
    MemoryTag tag;
    int64_t bytes = 0;
    std::vector<MemoryHolder> parts;
  };
  std::vector<Line> lines;
  for (const MemoryHolder& holder : holders) {
    auto line = std::find_if(
        lines.begin(), lines.end(),
        [&](const Line& other) { return other.tag == holder.owner.tag; });
    if (line == lines.end()) {
      line = lines.insert(line, {holder.owner.tag, 0, {}});
    }
    line->bytes += holder.bytes;
    if (holder.owner.part != nullptr) {
      line->parts.push_back(holder);
    }
  }
  std::stable_sort(
      lines.begin(), lines.end(),
      [](const Line& a, const Line& b) { return a.bytes > b.bytes; });
  std::string table;
  for (const Line& line : lines) {
    std::string name = name_of(line.tag);
    name.resize(12, ' ');
    table += str(table.empty() ? "" : "\n", indent, name, " ",
                 format_bytes(line.bytes));
    for (size_t i = 0; i < std::min(line.parts.size(), kNamedParts); ++i) {
      table += str(i == 0 ? ": " : ", ", *line.parts[i].owner.part, " ",
                   format_bytes(line.parts[i].bytes));
    }
    if (line.parts.size() > kNamedParts) {
      table += str(", ", line.parts.size() - kNamedParts, " others");
    }
  }
  return table;
}

namespace detail {

void attach(MemoryLedger* ledger, bool hears_allocator) {
  Attached& all = attached();
  const std::lock_guard lock(all.mutex);
  all.ledgers.push_back(ledger);
  if (hears_allocator) {
    all.hearing.push_back(ledger);
    all.hearing_count.store(all.hearing.size(), std::memory_order_release);
  }
}

void detach(MemoryLedger* ledger) {
  Attached& all = attached();
  const std::lock_guard lock(all.mutex);
  std::erase(all.ledgers, ledger);
  std::erase(all.hearing, ledger);
  all.hearing_count.store(all.hearing.size(), std::memory_order_release);
}

void tell_allocated(const void* block, int64_t bytes) {
  tell_hearing([&](MemoryLedger& ledger) {
    ledger.allocated(block, bytes, current_memory_owner());
  });
}

void tell_freed(const void* block) {
  tell_hearing([&](MemoryLedger& ledger) { ledger.freed(block); });
}

}  // namespace detail

void set_memory_owner(const void* block, MemoryOwner owner) {
  Attached& all = attached();
  const std::lock_guard lock(all.mutex);
  for (MemoryLedger* const ledger : all.ledgers) {
    ledger->set_owner(block, owner);
  }
}

}  // namespace remat
