// Large blocks of memory that are used again instead of faulted in again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "remat/memory/page_bitmap.h"

namespace remat {

struct PageArenaOptions {
  // Address space that is reserved at a time; only used pages take memory.
  // Where the system refuses, less is tried.
  size_t reservation_bytes = size_t{64} << 30;

  // Pages may stay resident while they and the blocks in use are together no
  // more than (1 + slack) times the most that blocks ever used.
  double slack = 0.02;
};

struct PageArenaStats {
  int64_t live_bytes = 0;      // of blocks in use, in whole pages
  int64_t resident_bytes = 0;  // in use, or kept for the next block
  int64_t peak_live_bytes = 0;
  int64_t peak_resident_bytes = 0;
  int64_t populated_bytes = 0;  // fresh pages taken from the system, in all
  int64_t released_bytes = 0;   // pages given back to it, in all
  int64_t allocations = 0;
};

// Blocks are cut from reserved address space, best fit first, and neighbours
// that are free are one range again. Free pages stay with the process, so that
// the next block costs no page fault; when a new block needs fresh pages and
// they would pass the bound above, as many free pages elsewhere are given back
// first. So the memory of the process follows what is in use, however much the
// address space fragments. Fresh pages are populated in one system call:
// faulted in one by one they cost up to twenty times as much.
//
// Thread-safe. Blocks that are in use when the arena goes are lost.
class PageArena {
 public:
  explicit PageArena(PageArenaOptions options = {});
  ~PageArena();
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  // A block on a page boundary, of undefined contents; bytes > 0. Throws Error
  // where there is no address space or less memory than it needs.
  void* allocate(size_t bytes);

  // The block must be in use.
  void free(void* block);

  bool owns(const void* block) const;

  // Gives all free pages back to the system.
  void release_cached();

  // From now on no more bytes than these are resident at once: free pages are
  // given back sooner, and where that is not enough allocate() throws
  // BudgetError. Blocks in use stay, also where they are more. The same holds
  // for the whole process: whenever fresh pages are needed, what it has outside
  // of the arena by then counts.
  void set_limit(int64_t resident_bytes, int64_t process_bytes = INT64_MAX);

  PageArenaStats stats() const;

 private:
  // Address space from one reservation, in pages.
  struct Segment {
    size_t pages = 0;
    PageBitmap resident;
  };
  using Segments = std::map<char*, Segment>;
  // (pages, begin), smallest first.
  using Range = std::pair<size_t, char*>;

  Segments::iterator segment_of(const void* address);
  size_t page_in(const Segments::value_type& segment,
                 const char* address) const;
  size_t resident_pages(char* begin, size_t pages);
  int64_t bytes_of(size_t pages) const;

  Range best_fit(size_t pages);
  Range reserve(size_t pages);
  void insert_free(char* begin, size_t pages);
  void erase_free(const Range& range);
  void give_back(char* begin, size_t pages);
  void populate(char* begin, size_t pages);
  int64_t limit_now() const;
  void make_room(size_t pages, size_t fresh);
  void check_available(int64_t fresh_bytes) const;
  void release(size_t pages);
  size_t release_range(const Range& range, size_t most);

  const PageArenaOptions options_;
  const size_t page_bytes_;
  mutable std::mutex mutex_;
  Segments segments_;
  std::map<char*, size_t> free_by_address_;  // begin -> pages
  std::set<Range> free_by_size_;
  std::unordered_map<void*, size_t> used_;  // begin -> pages
  PageArenaStats stats_;
  int64_t limit_ = INT64_MAX;
  int64_t process_limit_ = INT64_MAX;
};

}  // namespace remat
