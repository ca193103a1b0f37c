// A training run in a given memory: which layers are kept and recomputed, so
// that the process never holds more.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "remat/nn/bigbird.h"
#include "remat/plan/region_plan.h"
#include "remat/profile/memory_plan.h"
#include "remat/profile/profile_cache.h"

namespace remat::train {

// The plan for a batch of so many texts and tokens a text, padding included.
struct BatchPlan {
  int64_t texts = 0;
  int64_t length = 0;
  MemoryPlan memory;
};

// Plans batches of a run as they come: the largest first, then each that is
// larger or of another kind of attention than those before; a smaller one gets
// a plan that recomputes less where that fits too.
//
// The process must have libtorch's CPU memory from install_cpu_allocator(). The
// first plan holds it to the budget (hold_memory()), so that passing it is a
// BudgetError and nothing else.
class MemoryPlanner {
 public:
  // The model's weights are there, gradients and the optimizer's state
  // (AdamW's) are not yet. gradients_are_new: they are dropped after each
  // backward. cache: of profiles; without one, each plan measures.
  MemoryPlanner(nn::BigBirdClassifier& model, int64_t budget_bytes,
                bool gradients_are_new, std::optional<ProfileCache> cache);

  // Profiles the model on a batch of so many texts and tokens a text, or of as
  // many as an earlier one had, whichever is more, and makes its plan: some ten
  // passes, one if the profile is known. Throws NoPlanError with the least
  // budget that would do.
  const BatchPlan& plan(int64_t texts, int64_t length);

  // Sets the model's plan for a batch, made now if need be.
  void apply(int64_t texts, int64_t length);

 private:
  struct Planned {
    BatchPlan plan;
    Profile profile;
    // For batches of fewer tokens, by shares of the planned one's.
    std::map<int64_t, std::shared_ptr<const plan::RegionPlan>> smaller;
  };

  Profile profile_batch(int64_t texts, int64_t length);
  std::string profile_subject(const nn::BigBirdStages& run, int64_t texts,
                              int64_t length) const;
  const MemoryParts& parts();
  std::shared_ptr<const plan::RegionPlan> plan_for(Planned& planned,
                                                   int64_t share);

  nn::BigBirdClassifier& model_;
  const int64_t budget_bytes_;
  const bool gradients_are_new_;
  const std::optional<ProfileCache> cache_;
  std::optional<MemoryParts> parts_;
  std::map<bool, Planned> by_attention_;
};

}  // namespace remat::train
