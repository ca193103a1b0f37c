#include "remat/memory/ledger.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

namespace remat {
namespace {

const void* address(uintptr_t at) { return reinterpret_cast<const void*>(at); }

constexpr MemoryOwner kWeights{MemoryTag::kWeights};

TEST(MemoryScope, Nests) {
  EXPECT_EQ(current_memory_owner(), MemoryOwner{});
  {
    const MemoryScope forward(MemoryTag::kActivations, "layer 3");
    EXPECT_EQ(current_memory_owner(),
              memory_owner(MemoryTag::kActivations, "layer 3"));
    {
      const MemoryScope backward(MemoryTag::kBackward);
      EXPECT_EQ(current_memory_owner(),
                memory_owner(MemoryTag::kBackward, "layer 3"));
    }
    EXPECT_EQ(current_memory_owner(),
              memory_owner(MemoryTag::kActivations, std::string("layer 3")));
    std::thread([] {
      EXPECT_EQ(current_memory_owner(), MemoryOwner{});
    }).join();
  }
  EXPECT_EQ(current_memory_owner(), MemoryOwner{});
}

TEST(MemoryLedger, KnowsWhatMemoryIsForNowAndAtThePeak) {
  MemoryLedger ledger;
  const MemoryOwner layer = memory_owner(MemoryTag::kActivations, "layer 1");
  ledger.allocated(address(1), 100, kWeights);
  ledger.allocated(address(2), 50, layer);
  ledger.freed(address(2));
  ledger.allocated(address(3), 30, {});
  // Another ledger's block, and one whose use is known now.
  ledger.freed(address(9));
  ledger.set_owner(address(9), layer);
  ledger.set_owner(address(3), memory_owner(MemoryTag::kGradients));
  const MemoryUsage live = ledger.live(), peak = ledger.at_peak();
  EXPECT_EQ(live.total, 130);
  EXPECT_EQ(live.of(MemoryTag::kWeights), 100);
  EXPECT_EQ(live.of(MemoryTag::kGradients), 30);
  EXPECT_EQ(live.of(MemoryTag::kOther), 0);
  EXPECT_EQ(peak.total, 150);
  EXPECT_EQ(peak.of(MemoryTag::kActivations), 50);
  EXPECT_EQ(ledger.allocations(), 3);
  ledger.reset_peak();
  EXPECT_EQ(ledger.at_peak().total, 130);
  // The end of a block that nobody told: its address is another's.
  ledger.allocated(address(1), 10, layer);
  EXPECT_EQ(ledger.live().total, 40);
  EXPECT_EQ(ledger.live().of(MemoryTag::kWeights), 0);
}

TEST(MemoryLedger, TableNamesTheLargestHolders) {
  MemoryLedger ledger;
  EXPECT_EQ(usage_table(ledger, "  "), "");
  uintptr_t at = 1;
  for (const auto& [part, mebibytes] :
       std::map<std::string, int64_t>{{"layer 0", 8},
                                      {"layer 1", 64},
                                      {"layer 2", 16},
                                      {"layer 3", 4},
                                      {"layer 4", 2}}) {
    for (int i = 0; i < 2; ++i) {
      ledger.allocated(address(at++), mebibytes << 19,
                       memory_owner(MemoryTag::kActivations, part));
    }
  }
  ledger.allocated(address(at++), 200 << 20, kWeights);
  ledger.allocated(address(at++), 1 << 20,
                   memory_owner(MemoryTag::kBackward, "head"));
  const auto holders = ledger.holders();
  ASSERT_EQ(holders.size(), 7u);
  EXPECT_EQ(holders[1].bytes, 64 << 20);
  EXPECT_EQ(holders[1].blocks, 2);
  EXPECT_EQ(usage_table(ledger, "  "),
            "  weights      200 MiB\n"
            "  activations  94.0 MiB: layer 1 64.0 MiB, layer 2 16.0 MiB, "
            "layer 0 8.00 MiB, 2 others\n"
            "  backward     1.00 MiB: head 1.00 MiB");
}

TEST(MemoryLedger, RecordsATimeline) {
  MemoryLedger ledger;
  ledger.allocated(address(1), 7, kWeights);
  EXPECT_TRUE(ledger.timeline().events.empty());
  ledger.record(3);
  ledger.allocated(address(2), 5, memory_owner(MemoryTag::kOptimizer));
  ledger.freed(address(1));
  ledger.freed(address(2));
  ledger.allocated(address(3), 5, kWeights);
  ledger.record(0);
  ledger.freed(address(3));
  const MemoryTimeline timeline = ledger.timeline();
  EXPECT_EQ(timeline.before.of(MemoryTag::kWeights), 7);
  ASSERT_EQ(timeline.events.size(), 3u);
  EXPECT_EQ(timeline.dropped, 1);
  EXPECT_EQ(timeline.events[0].bytes, 5);
  EXPECT_EQ(timeline.events[1].bytes, -7);
  EXPECT_EQ(timeline.events[1].owner, kWeights);
  EXPECT_EQ(timeline.events[2].owner, memory_owner(MemoryTag::kOptimizer));
  EXPECT_GE(timeline.events[0].seconds, 0);
  EXPECT_GE(timeline.events[2].seconds, timeline.events[1].seconds);
  ledger.record(1);
  EXPECT_TRUE(ledger.timeline().events.empty());
}

RC_GTEST_PROP(MemoryLedger, AgreesWithASimpleCount, ()) {
  MemoryLedger ledger;
  ledger.record(1 << 16);
  std::map<uintptr_t, std::pair<int64_t, MemoryTag>> alive;
  int64_t peak = 0;
  const auto total = [&](auto&& counts) {
    int64_t bytes = 0;
    for (const auto& [block, entry] : alive) {
      bytes += counts(entry.second) ? entry.first : 0;
    }
    return bytes;
  };
  const int steps = *rc::gen::inRange(1, 200);
  for (int i = 0; i < steps; ++i) {
    const auto block = *rc::gen::inRange<uintptr_t>(1, 30);
    const auto tag = static_cast<MemoryTag>(
        *rc::gen::inRange<int>(0, static_cast<int>(kMemoryTags)));
    switch (*rc::gen::inRange(0, 3)) {
      case 0: {
        const auto bytes = *rc::gen::inRange<int64_t>(1, 1000);
        ledger.allocated(address(block), bytes, {tag});
        alive[block] = {bytes, tag};
        break;
      }
      case 1:
        ledger.freed(address(block));
        alive.erase(block);
        break;
      default:
        ledger.set_owner(address(block), {tag});
        if (alive.count(block) > 0) {
          alive[block].second = tag;
        }
    }
    peak = std::max(peak, total([](MemoryTag) { return true; }));
    for (size_t t = 0; t < kMemoryTags; ++t) {
      RC_ASSERT(ledger.live().by_tag[t] == total([&](MemoryTag other) {
                  return other == static_cast<MemoryTag>(t);
                }));
    }
  }
  RC_ASSERT(ledger.at_peak().total == peak);
  int64_t recorded = 0;
  for (const MemoryEvent& event : ledger.timeline().events) {
    recorded += event.bytes;
  }
  RC_ASSERT(recorded == ledger.live().total);
}

}  // namespace
}  // namespace remat
