#include "remat/memory/page_arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/memory/poison.h"
#include "remat/memory/process.h"

namespace remat {
namespace {

// A block of this many fresh bytes is checked against the memory there is
// first: the system hands out more than it has, and kills who uses it.
constexpr int64_t kCheckedBytes = int64_t{64} << 20;

// How many free ranges beyond the best fit are looked at for resident pages.
constexpr int kCandidates = 16;

void* map_pages(size_t bytes) {
  void* begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return begin == MAP_FAILED ? nullptr : begin;
}

// Brings fresh pages in; false where the system has no memory left.
bool populate_pages(char* begin, size_t bytes, size_t page_bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(begin, bytes, MADV_POPULATE_WRITE) == 0) {
    return true;
  }
  if (errno == ENOMEM || errno == EFAULT) {
    return false;
  }
#endif
  // Before Linux 5.14: one fault a page.
  for (size_t i = 0; i < bytes; i += page_bytes) {
    static_cast<volatile char*>(begin)[i] = 0;
  }
  return true;
}

}  // namespace

PageArena::PageArena(PageArenaOptions options)
    : options_(options),
      page_bytes_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {}

PageArena::~PageArena() {
  for (auto& [begin, segment] : segments_) {
    unpoison(begin,
             std::min(segment.pages, segment.resident.size()) * page_bytes_);
    munmap(begin, segment.pages * page_bytes_);
  }
}

void* PageArena::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes == 0 || bytes > static_cast<size_t>(INT64_MAX) - page_bytes_) {
    fail("memory", "cannot allocate a block of ", bytes, " bytes");
  }
  const size_t pages = (bytes + page_bytes_ - 1) / page_bytes_;
  Range range = best_fit(pages);
  if (range.second == nullptr) {
    range = reserve(pages);
  }
  char* begin = range.second;
  erase_free(range);
  if (range.first > pages) {
    insert_free(begin + pages * page_bytes_, range.first - pages);
  }
  try {
    populate(begin, pages);
  } catch (...) {
    give_back(begin, pages);
    throw;
  }
  used_.emplace(begin, pages);
  stats_.live_bytes += bytes_of(pages);
  stats_.peak_live_bytes = std::max(stats_.peak_live_bytes, stats_.live_bytes);
  ++stats_.allocations;
  unpoison(begin, bytes);
  return begin;
}

void PageArena::free(void* block) {
  const std::lock_guard lock(mutex_);
  const auto used = used_.find(block);
  if (used == used_.end()) {
    fail("memory", "freed a block that is not in use");
  }
  const size_t pages = used->second;
  used_.erase(used);
  stats_.live_bytes -= bytes_of(pages);
  poison(block, pages * page_bytes_);
  give_back(static_cast<char*>(block), pages);
}

// Makes the pages a free range, one with the free ranges beside them.
void PageArena::give_back(char* begin, size_t pages) {
  // Reservations may be neighbours too; a range never spans two.
  const auto segment = segment_of(begin);
  char* const end = begin + pages * page_bytes_;
  const auto next = free_by_address_.find(end);
  if (next != free_by_address_.end() && segment_of(end) == segment) {
    pages += next->second;
    erase_free({next->second, end});
  }
  const auto after = free_by_address_.lower_bound(begin);
  if (after != free_by_address_.begin()) {
    const auto [address, count] = *std::prev(after);
    if (address + count * page_bytes_ == begin &&
        segment_of(address) == segment) {
      erase_free({count, address});
      begin = address;
      pages += count;
    }
  }
  insert_free(begin, pages);
}

bool PageArena::owns(const void* block) const {
  const std::lock_guard lock(mutex_);
  const auto* address = static_cast<const char*>(block);
  auto after = segments_.upper_bound(const_cast<char*>(address));
  if (after == segments_.begin()) {
    return false;
  }
  const auto& [begin, segment] = *std::prev(after);
  return address < begin + segment.pages * page_bytes_;
}

void PageArena::release_cached() {
  const std::lock_guard lock(mutex_);
  release(SIZE_MAX);
}

PageArenaStats PageArena::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

PageArena::Segments::iterator PageArena::segment_of(const void* address) {
  return std::prev(segments_.upper_bound(
      const_cast<char*>(static_cast<const char*>(address))));
}

size_t PageArena::page_in(const Segments::value_type& segment,
                          const char* address) const {
  return static_cast<size_t>(address - segment.first) / page_bytes_;
}

size_t PageArena::resident_pages(char* begin, size_t pages) {
  const auto segment = segment_of(begin);
  return segment->second.resident.count_set(page_in(*segment, begin), pages);
}

int64_t PageArena::bytes_of(size_t pages) const {
  return static_cast<int64_t>(pages * page_bytes_);
}

// The smallest free range that holds the pages; of a few that do, the one that
// needs the fewest fresh pages. (0, nullptr) where none does.
PageArena::Range PageArena::best_fit(size_t pages) {
  Range best{0, nullptr};
  size_t fewest = SIZE_MAX;
  int candidates = 0;
  for (auto range = free_by_size_.lower_bound({pages, nullptr});
       range != free_by_size_.end() && candidates < kCandidates;
       ++range, ++candidates) {
    const size_t fresh = pages - resident_pages(range->second, pages);
    if (fresh < fewest) {
      best = *range;
      fewest = fresh;
    }
    if (fresh == 0) {
      break;
    }
  }
  return best;
}

PageArena::Range PageArena::reserve(size_t pages) {
  check_available(bytes_of(pages));
  const size_t least = pages * page_bytes_;
  size_t bytes = std::max(least, options_.reservation_bytes);
  bytes = (bytes + page_bytes_ - 1) / page_bytes_ * page_bytes_;
  void* begin = map_pages(bytes);
  while (begin == nullptr && bytes > least) {
    bytes = std::max(least, bytes / 2 / page_bytes_ * page_bytes_);
    begin = map_pages(bytes);
  }
  if (begin == nullptr) {
    fail("memory",
         "out of memory: the system has no address space for a block of ",
         format_bytes(bytes_of(pages)), ": ", std::strerror(errno));
  }
  // Pages are counted one by one; a huge page would come and go whole.
  madvise(begin, bytes, MADV_NOHUGEPAGE);
  auto* const address = static_cast<char*>(begin);
  segments_.emplace(address, Segment{bytes / page_bytes_, {}});
  insert_free(address, bytes / page_bytes_);
  return {bytes / page_bytes_, address};
}

void PageArena::insert_free(char* begin, size_t pages) {
  free_by_address_.emplace(begin, pages);
  free_by_size_.emplace(pages, begin);
}

void PageArena::erase_free(const Range& range) {
  free_by_address_.erase(range.second);
  free_by_size_.erase(range);
}

// Makes the pages of a block to come resident. They are no free range any more,
// so what is given back to make room for them is elsewhere.
void PageArena::populate(char* begin, size_t pages) {
  const size_t fresh = pages - resident_pages(begin, pages);
  if (fresh == 0) {
    return;
  }
  make_room(pages, fresh);
  check_available(bytes_of(fresh));
  const auto segment = segment_of(begin);
  PageBitmap& resident = segment->second.resident;
  const size_t end = page_in(*segment, begin) + pages;
  PageBitmap::Run run = resident.next_run(false, end - pages, end);
  for (; run.count > 0; run = resident.next_run(false, run.first, end)) {
    char* const from = segment->first + run.first * page_bytes_;
    unpoison(from, run.count * page_bytes_);
    if (!populate_pages(from, run.count * page_bytes_, page_bytes_)) {
      fail("memory", "out of memory: the system gave no pages for a block of ",
           format_bytes(bytes_of(pages)), ": ", std::strerror(errno));
    }
    resident.set(run.first, run.count);
    stats_.resident_bytes += bytes_of(run.count);
    stats_.populated_bytes += bytes_of(run.count);
  }
  stats_.peak_resident_bytes =
      std::max(stats_.peak_resident_bytes, stats_.resident_bytes);
}

// What the arena may hold, after what the process holds elsewhere.
int64_t PageArena::limit_now() const {
  if (process_limit_ == INT64_MAX) {
    return limit_;
  }
  const int64_t elsewhere =
      std::max<int64_t>(resident_bytes() - stats_.resident_bytes, 0);
  return std::min(limit_, process_limit_ - elsewhere);
}

// Gives free pages back, so that the fresh pages of a block pass neither the
// bound on what is kept nor the limit.
void PageArena::make_room(size_t pages, size_t fresh) {
  const int64_t limit = limit_now();
  const int64_t most_live =
      std::max(stats_.live_bytes + bytes_of(pages), stats_.peak_live_bytes);
  const auto bound = static_cast<int64_t>((1 + options_.slack) *
                                          static_cast<double>(most_live));
  const int64_t then = stats_.resident_bytes + bytes_of(fresh);
  const int64_t over = then - std::min(bound, limit);
  if (over > 0) {
    release((static_cast<size_t>(over) + page_bytes_ - 1) / page_bytes_);
  }
  if (stats_.resident_bytes + bytes_of(fresh) > limit) {
    const int64_t missing = stats_.live_bytes + bytes_of(pages) - limit;
    throw BudgetError(str("[memory] large tensors may use ",
                          format_bytes(std::max<int64_t>(limit, 0)),
                          " and use ", format_bytes(stats_.live_bytes),
                          "; another one needs ", format_bytes(bytes_of(pages)),
                          ": ", format_bytes(missing), " are missing"),
                      missing);
  }
}

void PageArena::set_limit(int64_t resident_bytes, int64_t process_bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = resident_bytes;
  process_limit_ = process_bytes;
  const int64_t over = stats_.resident_bytes - limit_now();
  if (over > 0) {
    release((static_cast<size_t>(over) + page_bytes_ - 1) / page_bytes_);
  }
}

void PageArena::check_available(int64_t fresh_bytes) const {
  if (fresh_bytes < kCheckedBytes) {
    return;
  }
  const int64_t available = available_bytes();
  if (fresh_bytes > available) {
    fail("memory", "out of memory: a block needs ", format_bytes(fresh_bytes),
         " and the system has ", format_bytes(available),
         " left; this process holds ", format_bytes(stats_.live_bytes),
         " in large blocks");
  }
}

// Gives up to so many free pages back, from the largest range on: it is the
// least likely to be the best fit of the next block. (The other way round, a
// training step took five times as many pages from the system.)
void PageArena::release(size_t pages) {
  for (auto range = free_by_size_.rbegin();
       range != free_by_size_.rend() && pages > 0; ++range) {
    pages -= release_range(*range, pages);
  }
}

size_t PageArena::release_range(const Range& range, size_t most) {
  const auto segment = segment_of(range.second);
  PageBitmap& resident = segment->second.resident;
  size_t page = page_in(*segment, range.second);
  const size_t end = page + range.first;
  size_t released = 0;
  while (released < most) {
    const PageBitmap::Run run = resident.next_run(true, page, end);
    if (run.count == 0) {
      break;
    }
    const size_t count = std::min(run.count, most - released);
    page = run.first + count;
    // Refused for locked pages, which then stay.
    if (madvise(segment->first + run.first * page_bytes_, count * page_bytes_,
                MADV_DONTNEED) == 0) {
      resident.clear(run.first, count);
      released += count;
    }
  }
  stats_.resident_bytes -= bytes_of(released);
  stats_.released_bytes += bytes_of(released);
  return released;
}

}  // namespace remat
