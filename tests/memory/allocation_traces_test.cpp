// Random allocations by several threads at once: counts, overlaps, leaks.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "remat/base/error.h"
#include "remat/memory/page_arena.h"

namespace remat {
namespace {

constexpr int kTraces = 10'000;
constexpr int kThreads = 3;
constexpr int kOperations = 24;
constexpr size_t kMostBytes = 96 << 10;
constexpr size_t kPage = 4096;

// A block with its number on each of its pages and in its last bytes.
struct Block {
  char* memory = nullptr;
  size_t bytes = 0;
  uint64_t number = 0;

  void write() const {
    for (size_t at = 0; at + 2 * sizeof number <= bytes; at += kPage) {
      std::memcpy(memory + at, &number, sizeof number);
    }
    std::memcpy(memory + bytes - sizeof number, &number, sizeof number);
  }

  bool is_intact() const {
    const auto has_number = [&](size_t at) {
      return std::memcmp(memory + at, &number, sizeof number) == 0;
    };
    for (size_t at = 0; at + 2 * sizeof number <= bytes; at += kPage) {
      if (!has_number(at)) {
        return false;
      }
    }
    return has_number(bytes - sizeof number);
  }
};

// Blocks that one thread allocates and another frees.
class Exchange {
 public:
  Block swap(Block block) {
    const std::lock_guard lock(mutex_);
    std::swap(block, block_);
    return block;
  }

 private:
  std::mutex mutex_;
  Block block_;
};

class Trace {
 public:
  explicit Trace(uint64_t seed) : seed_(seed) {
    std::mt19937_64 random(seed);
    PageArenaOptions options;
    options.reservation_bytes = size_t{1} << 20;
    arena_.emplace(options);
    if (random() % 2 == 0) {
      limit_ = static_cast<int64_t>((16 + random() % 64) * kPage);
      arena_->set_limit(limit_);
    }
  }

  void run() {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([this, i] { run_thread(static_cast<uint64_t>(i)); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    free(exchange_.swap({}));
    const PageArenaStats stats = arena_->stats();
    EXPECT_EQ(broken_, 0);
    EXPECT_EQ(stats.live_bytes, 0);
    EXPECT_EQ(stats.allocations, allocations_);
    EXPECT_LE(stats.peak_resident_bytes, limit_);
    EXPECT_LE(static_cast<double>(stats.peak_resident_bytes),
              1.02 * static_cast<double>(stats.peak_live_bytes) + kPage);
    EXPECT_EQ(stats.resident_bytes,
              stats.populated_bytes - stats.released_bytes);
    arena_->release_cached();
    EXPECT_EQ(arena_->stats().resident_bytes, 0);
    refused = refused_;
  }

  int refused = 0;

 private:
  void run_thread(uint64_t thread) {
    std::mt19937_64 random(seed_ * kThreads + thread);
    std::vector<Block> own;
    for (int i = 0; i < kOperations; ++i) {
      switch (random() % 8) {
        case 0:
          if (!own.empty()) {
            std::swap(own[random() % own.size()], own.back());
            const Block other = exchange_.swap(own.back());
            own.pop_back();
            free(other);
          }
          break;
        case 1:
        case 2:
        case 3:
          if (!own.empty()) {
            std::swap(own[random() % own.size()], own.back());
            free(own.back());
            own.pop_back();
          }
          break;
        case 4:
          if (random() % 8 == 0) {
            arena_->release_cached();
          }
          break;
        default:
          allocate(own, 16 + random() % kMostBytes,
                   (thread << 32) + static_cast<uint64_t>(i));
      }
    }
    for (const Block& block : own) {
      free(block);
    }
  }

  void allocate(std::vector<Block>& own, size_t bytes, uint64_t number) {
    try {
      const Block block{static_cast<char*>(arena_->allocate(bytes)), bytes,
                        number};
      ++allocations_;
      block.write();
      own.push_back(block);
    } catch (const BudgetError&) {
      ++refused_;
    }
  }

  void free(const Block& block) {
    if (block.memory != nullptr) {
      broken_ += block.is_intact() ? 0 : 1;
      arena_->free(block.memory);
    }
  }

  const uint64_t seed_;
  std::optional<PageArena> arena_;
  int64_t limit_ = INT64_MAX;
  Exchange exchange_;
  std::atomic<int> broken_{0};
  std::atomic<int> refused_{0};
  std::atomic<int64_t> allocations_{0};
};

TEST(AllocationTraces, LeaveNoWrongCountNoOverlapAndNoLeak) {
  int64_t refused = 0;
  for (uint64_t seed = 0; seed < kTraces; ++seed) {
    SCOPED_TRACE(seed);
    Trace trace(seed);
    trace.run();
    refused += trace.refused;
    if (HasFailure()) {
      break;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace remat
