#include "remat/kernels/block_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "remat/base/error.h"

namespace remat::kernels {
namespace {

using ::testing::HasSubstr;
using Lists = std::vector<std::vector<std::vector<int32_t>>>;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(BlockLayout, SortsAndCounts) {
  const BlockLayout layout(
      8, Lists{{{2, 0, 2}, {1}, {0, 1, 2}}, {{0}, {2, 2, 2}, {1, 0}}});
  EXPECT_EQ(layout.block_size(), 8);
  EXPECT_EQ(layout.heads(), 2);
  EXPECT_EQ(layout.blocks(), 3);
  ASSERT_EQ(layout.end(0, 0) - layout.begin(0, 0), 2);
  EXPECT_EQ(layout.begin(0, 0)[0].key_block, 0);
  EXPECT_EQ(layout.begin(0, 0)[0].count, 1);
  EXPECT_EQ(layout.begin(0, 0)[1].key_block, 2);
  EXPECT_EQ(layout.begin(0, 0)[1].count, 2);
  EXPECT_EQ(layout.count(1, 1, 2), 3);
  EXPECT_EQ(layout.count(1, 1, 0), 0);
  EXPECT_EQ(layout.count(1, 0, 2), 0);
}

TEST(BlockLayout, Dense) {
  const BlockLayout layout = BlockLayout::dense(4, 2, 5);
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t block = 0; block < 5; ++block) {
      ASSERT_EQ(layout.end(head, block) - layout.begin(head, block), 5);
      for (int64_t key = 0; key < 5; ++key) {
        EXPECT_EQ(layout.count(head, block, key), 1);
      }
    }
  }
}

TEST(BlockLayout, MisuseIsNamed) {
  EXPECT_THAT(error_of([] { BlockLayout(0, Lists{{{0}}}); }),
              HasSubstr("block size 0"));
  EXPECT_THAT(error_of([] { BlockLayout(4, Lists{}); }), HasSubstr("0 heads"));
  EXPECT_THAT(error_of([] {
                BlockLayout(4, Lists{{{0}, {}}});
              }),
              HasSubstr("head 0, query block 1 sees no key block"));
  EXPECT_THAT(error_of([] {
                BlockLayout(4, Lists{{{0}, {2}}});
              }),
              HasSubstr("lists key block 2, outside [0, 2)"));
  EXPECT_THAT(error_of([] {
                BlockLayout(4, Lists{{{0}, {-1}}});
              }),
              HasSubstr("lists key block -1"));
  EXPECT_THAT(error_of([] {
                BlockLayout(4, Lists{{{0}, {0}}, {{0}}});
              }),
              HasSubstr("head 1 lists 1 query blocks, head 0 lists 2"));
}

}  // namespace
}  // namespace remat::kernels
