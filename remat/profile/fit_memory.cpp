#include "remat/profile/fit_memory.h"

#include <algorithm>

#include "remat/memory/cpu_allocator.h"
#include "remat/memory/process.h"

namespace remat {
namespace {

// What small tensors, stacks and libraries take beyond what was there when the
// plan was made.
constexpr int64_t kSlackBytes = int64_t{4} << 20;

}  // namespace

MemoryParts measure_memory_parts(const std::vector<at::Tensor>& parameters,
                                 double optimizer_share) {
  release_cached_cpu_memory();
  MemoryParts parts;
  int64_t present = 0;
  for (const at::Tensor& parameter : parameters) {
    const auto bytes = static_cast<int64_t>(parameter.nbytes());
    parts.weights += bytes;
    present += bytes;
    if (parameter.requires_grad()) {
      parts.gradients += bytes;
      present += parameter.grad().defined() ? bytes : 0;
    }
  }
  // Frozen weights have no state.
  parts.optimizer = static_cast<int64_t>(optimizer_share *
                                         static_cast<double>(parts.gradients));
  parts.rest = std::max<int64_t>(resident_bytes() - present, 0);
  parts.slack = kSlackBytes;
  return parts;
}

void hold_memory(int64_t budget_bytes, int64_t slack_bytes) {
  if (!is_cpu_allocator_installed()) {
    return;
  }
  release_cached_cpu_memory();
  const int64_t outside_arena =
      resident_bytes() - cpu_allocator_stats().resident_bytes;
  set_cpu_allocator_limit(budget_bytes - slack_bytes - outside_arena,
                          budget_bytes);
}

MemoryPlan fit_memory(const std::vector<PlanStage>& stages, const at::Tensor& x,
                      const std::vector<at::Tensor>& parameters,
                      int64_t budget_bytes, const FitOptions& options) {
  ProfileOptions profiling = options.profile;
  profiling.gradients_exist = !options.gradients_are_new;
  const Profile profile = profile_stages(stages, x, profiling);
  MemoryParts parts = measure_memory_parts(parameters, options.optimizer_share);
  // The plan counts it too.
  parts.rest = std::max<int64_t>(parts.rest - profile.chain.input_bytes, 0);
  MemoryPlan plan =
      plan_memory(profile, parts, budget_bytes, options.gradients_are_new);
  hold_memory(budget_bytes, parts.slack);
  return plan;
}

}  // namespace remat
