#include "remat/memory/page_arena.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "remat/base/error.h"
#include "remat/memory/process.h"

namespace remat {
namespace {

const auto kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

PageArenaOptions small_arena(double slack = 0) {
  PageArenaOptions options;
  options.reservation_bytes = 256 * kPage;
  options.slack = slack;
  return options;
}

// Pages of [begin, begin + bytes) that the system holds.
int64_t pages_in_core(void* begin, size_t bytes) {
  std::vector<unsigned char> in_core(bytes / kPage);
  EXPECT_EQ(mincore(begin, bytes, in_core.data()), 0);
  return std::count_if(in_core.begin(), in_core.end(),
                       [](unsigned char page) { return (page & 1) != 0; });
}

struct Block {
  unsigned char* begin;
  size_t bytes;
  unsigned char value;
};

Block fill(PageArena& arena, size_t bytes, unsigned char value) {
  Block block{static_cast<unsigned char*>(arena.allocate(bytes)), bytes, value};
  std::memset(block.begin, value, bytes);
  return block;
}

bool is_whole(const Block& block) {
  return std::all_of(
      block.begin, block.begin + block.bytes,
      [&block](unsigned char byte) { return byte == block.value; });
}

// Blocks keep what is written to them, and what the statistics say is what the
// system says, after each step of a random program.
RC_GTEST_PROP(PageArena, CountsWhatTheSystemCounts, ()) {
  const double slack = *rc::gen::element(0.0, 0.1, 1.0);
  PageArena arena(small_arena(slack));
  // The first block stands at the beginning of the reservation.
  auto* const reservation = static_cast<unsigned char*>(arena.allocate(1));
  arena.free(reservation);
  std::vector<Block> blocks;
  int64_t live_pages = 0;
  int64_t most_pages = 1;
  const int steps = *rc::gen::inRange(1, 60);
  for (int i = 0; i < steps; ++i) {
    const auto bytes = *rc::gen::inRange<size_t>(1, 12 * kPage);
    const auto pages = static_cast<int64_t>((bytes + kPage - 1) / kPage);
    if (blocks.empty() || (live_pages < 128 && *rc::gen::arbitrary<bool>())) {
      blocks.push_back(fill(arena, bytes, static_cast<unsigned char>(i)));
      RC_ASSERT(reinterpret_cast<uintptr_t>(blocks.back().begin) % kPage == 0u);
      RC_ASSERT(blocks.back().begin - reservation <
                static_cast<ptrdiff_t>(256 * kPage));
      live_pages += pages;
      most_pages = std::max(most_pages, live_pages);
    } else {
      const auto which = *rc::gen::inRange<size_t>(0, blocks.size());
      RC_ASSERT(is_whole(blocks[which]));
      arena.free(blocks[which].begin);
      live_pages -=
          static_cast<int64_t>((blocks[which].bytes + kPage - 1) / kPage);
      blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(which));
    }
    const PageArenaStats stats = arena.stats();
    const auto page = static_cast<int64_t>(kPage);
    RC_ASSERT(stats.live_bytes == live_pages * page);
    RC_ASSERT(stats.peak_live_bytes == most_pages * page);
    RC_ASSERT(stats.resident_bytes ==
              page * pages_in_core(reservation, 256 * kPage));
    RC_ASSERT(stats.resident_bytes ==
              stats.populated_bytes - stats.released_bytes);
    RC_ASSERT(stats.peak_resident_bytes >= stats.resident_bytes);
    RC_ASSERT(static_cast<double>(stats.peak_resident_bytes) <=
              (1 + slack) * static_cast<double>(stats.peak_live_bytes));
  }
  RC_ASSERT(std::all_of(blocks.begin(), blocks.end(), is_whole));
  for (const Block& block : blocks) {
    arena.free(block.begin);
  }
  // All free ranges have become one.
  if (most_pages <= 200) {
    auto* const whole =
        static_cast<unsigned char*>(arena.allocate(200 * kPage));
    RC_ASSERT(whole == reservation);
    arena.free(whole);
  }
  arena.release_cached();
  RC_ASSERT(arena.stats().resident_bytes == 0);
  RC_ASSERT(pages_in_core(reservation, 256 * kPage) == 0);
}

TEST(PageArena, ASecondRoundTakesNoFreshPage) {
  PageArena arena(small_arena());
  const auto round = [&arena] {
    void* a = arena.allocate(20 * kPage);
    void* b = arena.allocate(10 * kPage);
    arena.free(a);
    void* c = arena.allocate(15 * kPage);
    arena.free(b);
    arena.free(c);
  };
  round();
  const PageArenaStats first = arena.stats();
  EXPECT_EQ(first.populated_bytes, static_cast<int64_t>(30 * kPage));
  round();
  EXPECT_EQ(arena.stats().populated_bytes, first.populated_bytes);
  EXPECT_EQ(arena.stats().released_bytes, 0);
  EXPECT_EQ(arena.stats().allocations, 6);
}

// Four blocks, every second freed: a block of two fits none of the holes, and
// the process does not grow for it.
TEST(PageArena, FragmentsOfAddressSpaceHoldNoMemory) {
  PageArena arena(small_arena());
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) {
    blocks.push_back(arena.allocate(8 * kPage));
  }
  for (size_t i = 0; i < blocks.size(); i += 2) {
    arena.free(blocks[i]);
  }
  const int64_t before = arena.stats().resident_bytes;
  void* large = arena.allocate(16 * kPage);
  EXPECT_EQ(arena.stats().resident_bytes, before);
  EXPECT_EQ(arena.stats().released_bytes, static_cast<int64_t>(16 * kPage));
  arena.free(large);
  for (size_t i = 1; i < blocks.size(); i += 2) {
    arena.free(blocks[i]);
  }
}

TEST(PageArena, GrowsBeyondOneReservation) {
  PageArena arena(small_arena());
  std::vector<Block> blocks;
  for (unsigned char i = 0; i < 20; ++i) {
    blocks.push_back(fill(arena, 100 * kPage, i));
    EXPECT_TRUE(arena.owns(blocks.back().begin));
    EXPECT_TRUE(arena.owns(blocks.back().begin + 100 * kPage - 1));
  }
  // Larger than a reservation.
  blocks.push_back(fill(arena, 1000 * kPage, 99));
  for (const Block& block : blocks) {
    EXPECT_TRUE(is_whole(block));
    arena.free(block.begin);
  }
  EXPECT_EQ(arena.stats().live_bytes, 0);
  int outside = 0;
  EXPECT_FALSE(arena.owns(&outside));
  EXPECT_FALSE(arena.owns(nullptr));
}

TEST(PageArena, RefusesWhatCannotBe) {
  PageArena arena(small_arena());
  void* block = arena.allocate(3 * kPage);
  EXPECT_THROW(arena.free(static_cast<char*>(block) + kPage), Error);
  EXPECT_THROW(arena.free(nullptr), Error);
  // More than there is; more than can be addressed; nothing; no number at all.
  for (const size_t bytes :
       {size_t{1} << 46, size_t{1} << 62, size_t{0}, SIZE_MAX, SIZE_MAX - 1}) {
    try {
      arena.allocate(bytes);
      ADD_FAILURE() << bytes;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).rfind("[memory] ", 0), 0u)
          << error.what();
    }
  }
  const Block other = fill(arena, 5 * kPage, 7);
  EXPECT_TRUE(is_whole(other));
  arena.free(other.begin);
  arena.free(block);
  EXPECT_THROW(arena.free(block), Error);
  EXPECT_EQ(arena.stats().live_bytes, 0);
}

TEST(PageArena, HoldsItsLimit) {
  PageArena arena(small_arena(1.0));
  arena.set_limit(static_cast<int64_t>(20 * kPage));
  Block a = fill(arena, 10 * kPage, 1);
  Block b = fill(arena, 8 * kPage, 2);
  try {
    arena.allocate(3 * kPage);
    FAIL() << "nothing was thrown";
  } catch (const BudgetError& error) {
    EXPECT_STREQ(error.what(),
                 "[memory] large tensors may use 80.0 KiB and use 72.0 KiB; "
                 "another one needs 12.0 KiB: 4.00 KiB are missing");
  }
  // Nothing is lost, and what is free makes room.
  arena.free(a.begin);
  const Block c = fill(arena, 12 * kPage, 3);
  EXPECT_TRUE(is_whole(b));
  EXPECT_TRUE(is_whole(c));
  EXPECT_LE(arena.stats().peak_resident_bytes,
            static_cast<int64_t>(20 * kPage));
  arena.free(b.begin);
  // A lower limit gives back at once what it can.
  arena.set_limit(static_cast<int64_t>(4 * kPage));
  EXPECT_EQ(arena.stats().resident_bytes, static_cast<int64_t>(12 * kPage));
  EXPECT_THROW(arena.allocate(1), BudgetError);
  arena.free(c.begin);
  arena.set_limit(INT64_MAX);
  arena.free(fill(arena, 40 * kPage, 4).begin);
}

// What the process takes elsewhere after the limit was set counts, whenever the
// arena needs fresh pages.
TEST(Process, AnArenaHoldsItsLimit) {
  constexpr size_t kMiB = size_t{1} << 20;
  PageArena arena(small_arena(1.0));
  arena.free(fill(arena, 96 * kMiB, 1).begin);
  arena.set_limit(INT64_MAX,
                  resident_bytes() + static_cast<int64_t>(128 * kMiB));
  void* const elsewhere = mmap(nullptr, 192 * kMiB, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(elsewhere, MAP_FAILED);
  std::memset(elsewhere, 2, 192 * kMiB);
  // 32 MiB are left, once the free pages are given back.
  try {
    arena.allocate(200 * kMiB);
    FAIL() << "nothing was thrown";
  } catch (const BudgetError& error) {
    EXPECT_NEAR(static_cast<double>(error.missing_bytes()), 168.0 * kMiB,
                14.0 * kMiB);
  }
  EXPECT_EQ(arena.stats().resident_bytes, 0);
  const Block block = fill(arena, 16 * kMiB, 3);
  EXPECT_THROW(arena.allocate(32 * kMiB), BudgetError);
  munmap(elsewhere, 192 * kMiB);
  const Block other = fill(arena, 32 * kMiB, 4);
  EXPECT_TRUE(is_whole(block));
  EXPECT_TRUE(is_whole(other));
  arena.free(block.begin);
  arena.free(other.begin);
}

// Random programs under a limit: it is never passed, and whatever fits is got.
RC_GTEST_PROP(PageArena, NeverPassesItsLimit, ()) {
  PageArena arena(small_arena(*rc::gen::element(0.0, 1.0)));
  const auto limit = *rc::gen::inRange<int64_t>(1, 40);
  arena.set_limit(limit * static_cast<int64_t>(kPage));
  std::vector<Block> blocks;
  int64_t live_pages = 0;
  const int steps = *rc::gen::inRange(1, 60);
  for (int i = 0; i < steps; ++i) {
    const auto pages = *rc::gen::inRange<int64_t>(1, 12);
    if (blocks.empty() || *rc::gen::arbitrary<bool>()) {
      try {
        blocks.push_back(fill(arena, static_cast<size_t>(pages) * kPage,
                              static_cast<unsigned char>(i)));
        live_pages += pages;
        RC_ASSERT(live_pages <= limit);
      } catch (const BudgetError&) {
        RC_ASSERT(live_pages + pages > limit);
      }
    } else {
      const auto which = *rc::gen::inRange<size_t>(0, blocks.size());
      RC_ASSERT(is_whole(blocks[which]));
      live_pages -= static_cast<int64_t>(blocks[which].bytes / kPage);
      arena.free(blocks[which].begin);
      blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(which));
    }
    RC_ASSERT(arena.stats().resident_bytes <=
              limit * static_cast<int64_t>(kPage));
  }
  for (const Block& block : blocks) {
    arena.free(block.begin);
  }
}

TEST(PageArena, ServesThreads) {
  PageArena arena(small_arena(0.1));
  std::vector<std::thread> threads;
  std::vector<int> broken(4, 0);
  for (size_t thread = 0; thread < broken.size(); ++thread) {
    threads.emplace_back([&arena, &broken, thread] {
      std::mt19937 random(static_cast<unsigned>(thread));
      std::vector<Block> blocks;
      for (int i = 0; i < 400; ++i) {
        if (blocks.size() < 4) {
          blocks.push_back(fill(arena, 1 + random() % (9 * kPage),
                                static_cast<unsigned char>(random())));
          continue;
        }
        const size_t which = random() % blocks.size();
        broken[thread] += is_whole(blocks[which]) ? 0 : 1;
        arena.free(blocks[which].begin);
        blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(which));
      }
      for (const Block& block : blocks) {
        arena.free(block.begin);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(broken, std::vector<int>(4, 0));
  EXPECT_EQ(arena.stats().live_bytes, 0);
}

}  // namespace
}  // namespace remat
