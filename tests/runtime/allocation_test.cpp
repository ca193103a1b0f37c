// Where nothing requires gradients a region costs nothing: counted in calls of
// operator new.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "remat/runtime/checkpoint.h"

namespace {

thread_local bool counting = false;
thread_local int64_t calls = 0;

}  // namespace

// For the whole test program; as malloc's, so that nothing else changes.
void* operator new(size_t bytes) {
  calls += counting ? 1 : 0;
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) {
    return memory;
  }
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace remat {
namespace {

template <class Action>
int64_t allocations(const Action& action) {
  calls = 0;
  counting = true;
  action();
  counting = false;
  return calls;
}

TEST(Allocations, NoneWithoutGradients) {
  const at::Tensor x = at::randn({8}).requires_grad_();
  const auto same = [](const at::Tensor& t) { return t; };
  const CheckpointOptions options;
  EXPECT_GT(allocations([&] { checkpoint(options, same, x); }), 0);
  {
    const c10::NoGradGuard no_grad;
    EXPECT_EQ(allocations([&] { checkpoint(options, same, x); }), 0);
    EXPECT_EQ(allocations([&] { checkpoint(same, x); }), 0);
  }
  const c10::InferenceMode inference;
  EXPECT_EQ(allocations([&] { checkpoint(options, same, x); }), 0);
}

}  // namespace
}  // namespace remat
