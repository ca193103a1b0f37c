#include "remat/memory/page_bitmap.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace remat {
namespace {

TEST(PageBitmap, IsEmptyAtFirst) {
  const PageBitmap pages;
  EXPECT_EQ(pages.size(), 0u);
  EXPECT_EQ(pages.count_set(1000, 5000), 0u);
  EXPECT_EQ(pages.next_run(true, 3, 900).count, 0u);
  const PageBitmap::Run unset = pages.next_run(false, 3, 900);
  EXPECT_EQ(unset.first, 3u);
  EXPECT_EQ(unset.count, 897u);
}

// Against a vector of flags.
RC_GTEST_PROP(PageBitmap, IsAVectorOfFlags, ()) {
  constexpr size_t kPages = 300;
  PageBitmap pages;
  std::vector<bool> flags(kPages, false);
  const auto range = [] {
    const auto first = *rc::gen::inRange<size_t>(0, kPages);
    return std::pair{first, *rc::gen::inRange<size_t>(0, kPages - first + 1)};
  };
  for (int i = *rc::gen::inRange(0, 20); i > 0; --i) {
    const auto [first, count] = range();
    const bool set = *rc::gen::arbitrary<bool>();
    set ? pages.set(first, count) : pages.clear(first, count);
    std::fill_n(flags.begin() + static_cast<ptrdiff_t>(first), count, set);
  }
  const auto [first, count] = range();
  const size_t end = first + count;
  const auto at = [&flags](size_t page) {
    return flags.begin() + static_cast<ptrdiff_t>(page);
  };
  RC_ASSERT(pages.count_set(first, count) ==
            static_cast<size_t>(std::count(at(first), at(end), true)));
  for (const bool set : {false, true}) {
    const auto begin = std::find(at(first), at(end), set);
    const auto run = pages.next_run(set, first, end);
    RC_ASSERT(run.count ==
              static_cast<size_t>(std::find(begin, at(end), !set) - begin));
    if (run.count > 0) {
      RC_ASSERT(run.first == static_cast<size_t>(begin - flags.begin()));
    }
  }
}

}  // namespace
}  // namespace remat
