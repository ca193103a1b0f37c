// One bit a page, for ranges of pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace remat {

// Pages beyond the last that was ever set count as not set, and cost nothing.
class PageBitmap {
 public:
  struct Run {
    size_t first = 0;
    size_t count = 0;  // 0: there is none
  };

  void set(size_t first, size_t count);
  void clear(size_t first, size_t count);

  // How many of the pages [first, first + count) are set.
  size_t count_set(size_t first, size_t count) const;

  // No page from here on was ever set.
  size_t size() const;

  // The first run of pages in [first, end) that all are, or all are not, set.
  Run next_run(bool is_set, size_t first, size_t end) const;

 private:
  // The first page in [first, end) whose bit is `is_set`, or end.
  size_t find(bool is_set, size_t first, size_t end) const;

  std::vector<uint64_t> words_;
};

}  // namespace remat
