// From a profile and a budget to the plan that keeps a process within it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "remat/plan/chain.h"
#include "remat/plan/region_plan.h"
#include "remat/plan/solve.h"
#include "remat/profile/profile_stages.h"

namespace remat {

// The resident bytes of a process that trains, but for activations.
struct MemoryParts {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  // Code, texts, tokenizer, small tensors, what libraries keep for themselves.
  int64_t rest = 0;
  // What allocators hold beyond what they were asked for.
  int64_t slack = 0;

  int64_t total() const {
    return weights + gradients + optimizer + rest + slack;
  }
};

struct MemoryPlan {
  int64_t budget_bytes = 0;
  MemoryParts parts;
  // Of the stages; fixed_bytes is parts.total() and what stages share.
  plan::Chain chain;
  // Its peak is that of the process.
  plan::Plan plan;
  std::shared_ptr<const plan::RegionPlan> regions;  // of the plan
  // With everything kept.
  int64_t unbounded_peak_bytes = 0;
  double unbounded_seconds = 0;
  // Of a step that is so many passes over the stages and the optimizer's
  // update.
  int64_t passes = 1;
  double update_seconds = 0;

  double step_seconds() const;
  double unbounded_step_seconds() const;

  // Lines for people: what is kept and recomputed, and what that costs.
  std::string explain() const;
};

// The fastest plan with which the process holds no more than the budget.
// gradients_are_new: the gradients of a stage's parameters are there from its
// backward on, and not before, as where they are dropped after each step;
// otherwise they are all there all the time. Throws NoPlanError with the least
// budget that would do.
MemoryPlan plan_memory(const Profile& profile, const MemoryParts& parts,
                       int64_t budget_bytes, bool gradients_are_new);

// The profile of a smaller batch, numerator / denominator of its rows: all
// bytes but those of the backward's workspace shrink with it, and so do times.
Profile scaled(Profile profile, int64_t numerator, int64_t denominator);

}  // namespace remat
