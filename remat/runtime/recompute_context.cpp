#include "remat/runtime/recompute_context.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "remat/base/philox.h"
#include "remat/runtime/context_guard.h"

namespace remat {
namespace {

thread_local RecomputeContext current_context;

uint64_t draw_seed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

}  // namespace

const RecomputeContext& recompute_context() { return current_context; }

bool is_recomputing() { return current_context.recomputing; }

SeedScope::SeedScope(uint64_t seed)
    : outer_seed_(current_context.seed),
      outer_seeds_drawn_(current_context.seeds_drawn) {
  current_context.seed = seed;
  current_context.seeds_drawn = 0;
}

SeedScope::~SeedScope() {
  current_context.seed = outer_seed_;
  current_context.seeds_drawn = outer_seeds_drawn_;
}

uint64_t next_layer_seed(std::optional<uint64_t> layer_seed) {
  if (!current_context.seed.has_value()) {
    const uint64_t seed = draw_seed();
    return layer_seed.has_value() ? derive_seed(seed, *layer_seed) : seed;
  }
  // Numbered calls and given layer seeds must not meet: the first are derived
  // twice.
  if (layer_seed.has_value()) {
    return derive_seed(*current_context.seed, *layer_seed);
  }
  constexpr uint64_t kNumberedCalls = ~uint64_t{0};
  return derive_seed(derive_seed(*current_context.seed, kNumberedCalls),
                     current_context.seeds_drawn++);
}

namespace detail {

ContextGuard::ContextGuard(const RecomputeContext& context)
    : outer_(current_context) {
  current_context = context;
}

ContextGuard::~ContextGuard() { current_context = outer_; }

DepthGuard::DepthGuard() { ++current_context.depth; }

DepthGuard::~DepthGuard() { --current_context.depth; }

}  // namespace detail
}  // namespace remat
