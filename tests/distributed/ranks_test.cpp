// The harness itself: what goes wrong in a rank is seen, and nothing hangs.
#include "tests/distributed/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <stdexcept>
#include <thread>

#include "tests/distributed/training.h"

namespace remat::distributed {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

TEST(Ranks, EachRunsInAProcessOfItsOwn) {
  const auto results = run_ranks(
      [](const Rendezvous& rendezvous) {
        std::printf("rank %d of %d\n", rendezvous.rank, rendezvous.world_size);
      },
      {.count = 3});
  ASSERT_EQ(results.size(), 3u);
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(results[rank].passed);
    EXPECT_THAT(results[rank].output,
                HasSubstr("rank " + std::to_string(rank) + " of 3"));
  }
}

TEST(Ranks, AFailedExpectationOrAnExceptionIsAFailure) {
  const auto results = run_ranks([](const Rendezvous& rendezvous) {
    if (rendezvous.rank == 0) {
      throw std::runtime_error("thrown by a rank");
    }
    EXPECT_EQ(1, 2) << "expected by a rank";
  });
  EXPECT_FALSE(results[0].passed);
  EXPECT_THAT(results[0].output, HasSubstr("thrown by a rank"));
  EXPECT_FALSE(results[1].passed);
  EXPECT_THAT(results[1].output, HasSubstr("expected by a rank"));
}

TEST(Ranks, ADeadRankEndsTheOthers) {
  const auto begin = steady_clock::now();
  const auto results = run_ranks(
      [](const Rendezvous& rendezvous) {
        ProcessGroup group = ProcessGroup::connect(rendezvous);
        group.barrier();
        if (rendezvous.rank == 1) {
          raise(SIGKILL);
        }
        group.barrier();
      },
      {.timeout = seconds(100), .grace = seconds(20)});
  EXPECT_LT(steady_clock::now() - begin, seconds(60));
  EXPECT_EQ(results[1].end, "signal 9");
  // The broken connection tells rank 0, in our words.
  EXPECT_EQ(results[0].end, "exit code 1");
  EXPECT_THAT(results[0].output,
              HasSubstr("[process_group] barrier on rank 0 of 2 failed; "
                        "another rank has probably ended"));
}

TEST(Ranks, OneThatHangsIsStopped) {
  const auto results = run_ranks(
      [](const Rendezvous& rendezvous) {
        while (rendezvous.rank == 0) {
          std::this_thread::sleep_for(seconds(1));
        }
      },
      {.timeout = seconds(8)});
  EXPECT_FALSE(results[0].passed);
  EXPECT_THAT(results[0].end, HasSubstr("stopped after"));
  EXPECT_TRUE(results[1].passed);
}

TEST(Ranks, ComparisonSeesASingleBit) {
  on_ranks([](ProcessGroup& group) {
    const at::Tensor x = at::zeros({3}, at::kDouble);
    EXPECT_TRUE(same_on_all_ranks(group, {x, at::Tensor()}));
    if (group.rank() == 1) {
      x.select(0, 2).neg_();
    }
    EXPECT_FALSE(same_on_all_ranks(group, {x}));
    EXPECT_FALSE(same_on_all_ranks(
        group, {group.rank() == 1 ? at::zeros({1}) : at::Tensor()}));
  });
}

}  // namespace
}  // namespace remat::distributed
