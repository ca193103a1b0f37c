// Memory that ends: each allocation of tensor memory fails in turn, in forward,
// recomputation and backward. Nothing crashes, nothing leaks, and the next run
// is as if nothing had been.
#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <cstring>

#include "remat/base/error.h"
#include "remat/runtime/checkpoint.h"
#include "remat/runtime/checkpoint_graph.h"
#include "remat/runtime/plan_executor.h"

namespace remat {
namespace {

using torch::autograd::grad;

std::atomic<int64_t> live_blocks{0};
// Fails when it is counted down to 0; below 0 nothing does.
std::atomic<int64_t> until_failure{-1};

void free_block(void* block) {
  if (block != nullptr) {
    --live_blocks;
    c10::profiledCPUMemoryReporter().Delete(block);
    std::free(block);
  }
}

c10::DataPtr allocate_block(size_t bytes) {
  if (until_failure > 0 && --until_failure == 0) {
    until_failure = -1;
    throw BudgetError("[test] this allocation fails");
  }
  void* block = nullptr;
  if (bytes > 0) {
    block = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    ++live_blocks;
    c10::profiledCPUMemoryReporter().New(block, bytes);
  }
  return {block, block, &free_block, c10::Device(c10::DeviceType::CPU)};
}

class FailingAllocator final : public c10::Allocator {
 public:
  // Constant in libtorch 1.13 and not in later versions.
  // NOLINTNEXTLINE(modernize-use-override)
  c10::DataPtr allocate(size_t bytes) const { return allocate_block(bytes); }
  // NOLINTNEXTLINE(modernize-use-override)
  c10::DataPtr allocate(size_t bytes) { return allocate_block(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  // NOLINTNEXTLINE(modernize-use-override)
  void copy_data(void* to, const void* from, size_t bytes) const {
    std::memcpy(to, from, bytes);
  }
};

class Exhaustion : public testing::Test {
 protected:
  // For the other tests of this process it is an allocator like any other.
  static void SetUpTestSuite() {
    static bool installed = false;
    if (!installed) {
      installed = true;
      c10::SetCPUAllocator(new FailingAllocator, /*priority=*/1);
    }
  }

  // step: forward and backward, by itself; its gradients are compared.
  template <class Step>
  static void fail_each_allocation(Step step) {
    const std::vector<at::Tensor> expected = step();
    // Once more, so that caches of libtorch are filled.
    step();
    const int64_t before = live_blocks;
    int failures = 0;
    for (int64_t n = 1;; ++n) {
      bool failed = false;
      until_failure = n;
      try {
        step();
      } catch (const BudgetError&) {
        failed = true;
      }
      until_failure = -1;
      if (!failed) {
        break;
      }
      ++failures;
      {
        const std::vector<at::Tensor> got = step();
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_TRUE(at::equal(got[i], expected[i]))
              << "gradient " << i << " after failure " << n;
        }
      }
      // The last state of the random generators is held in between.
      EXPECT_EQ(live_blocks, before) << "after failure " << n;
    }
    EXPECT_GT(failures, 20);
  }
};

at::Tensor block(const at::Tensor& x, const at::Tensor& w) {
  return at::dropout(at::gelu(at::mm(x, w)), 0.2, true) + x.sin();
}

struct Weights {
  at::Tensor x = at::full({8, 8}, 0.5, at::kDouble).requires_grad_();
  at::Tensor w = at::full({8, 8}, 0.1, at::kDouble).requires_grad_();
};

TEST_F(Exhaustion, OfNestedRegions) {
  const Weights at;
  fail_each_allocation([&] {
    at::manual_seed(1);
    const at::Tensor out = checkpoint(
        CheckpointOptions().policy(policy::matmuls()),
        [&](const at::Tensor& x) {
          const at::Tensor y = checkpoint(
              [&](const at::Tensor& t) { return block(t, at.w); }, x);
          return block(y, at.w).exp();
        },
        at.x);
    return grad({out.sum()}, {at.x, at.w});
  });
}

TEST_F(Exhaustion, OfAPlan) {
  const Weights at;
  using Kind = plan::RegionStep::Kind;
  const auto plan = std::make_shared<const plan::RegionPlan>(plan::RegionPlan{
      .stages = 4,
      .steps = {{.kind = Kind::kRegion,
                 .begin = 0,
                 .end = 2,
                 .inside = {{.begin = 0, .end = 1}, {.begin = 1, .end = 2}}},
                {.kind = Kind::kRegionThenSave,
                 .begin = 2,
                 .end = 4,
                 .inside = {{.begin = 2, .end = 3}}}}});
  const std::vector<PlanStage> stages(
      4, PlanStage{[&](const at::Tensor& t) { return block(t, at.w); }, {}});
  fail_each_allocation([&] {
    at::manual_seed(1);
    const at::Tensor out = run_plan(plan, stages, CheckpointOptions(), at.x);
    return grad({out.sum()}, {at.x, at.w});
  });
}

TEST_F(Exhaustion, OfAGraph) {
  const Weights at;
  fail_each_allocation([&] {
    at::manual_seed(1);
    const at::Tensor out = checkpoint_graph(
        policy::names({"middle"}),
        [&](const at::Tensor& x) {
          const at::Tensor y = keep("middle", block(x, at.w).tanh());
          return block(y, at.w).exp();
        },
        at.x);
    return grad({out.sum()}, {at.x, at.w});
  });
}

// A backward that failed can be repeated on the same graph.
TEST_F(Exhaustion, OfABackwardThatIsRepeated) {
  const Weights at;
  fail_each_allocation([&] {
    at::manual_seed(1);
    const int64_t armed = until_failure.exchange(-1);
    const at::Tensor out = checkpoint(
        [&](const at::Tensor& x) { return block(block(x, at.w), at.w); }, at.x);
    const at::Tensor loss = out.sum();
    until_failure = armed;
    std::vector<at::Tensor> first;
    try {
      first = grad({loss}, {at.x, at.w}, {}, /*retain_graph=*/true);
    } catch (const BudgetError&) {
      first = grad({loss}, {at.x, at.w}, {}, /*retain_graph=*/true);
      const auto again = grad({loss}, {at.x, at.w});
      EXPECT_TRUE(at::equal(first[0], again[0]));
      throw;
    }
    return first;
  });
}

}  // namespace
}  // namespace remat
