// A training run in a given memory: which layers are kept and recomputed, so
// that the process never holds more.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "remat/nn/bigbird.h"
#include "remat/plan/chain.h"
#include "remat/plan/region_plan.h"
#include "remat/plan/solve.h"
#include "remat/profile/profile_stages.h"

namespace remat::train {

// The resident bytes of the process, by what they are for.
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

// Of a model that is to be trained by AdamW: its weights are there, gradients
// and moments are not yet. Gives cached memory back first.
MemoryParts measure_memory_parts(const nn::BigBirdClassifier& model);

struct MemoryPlan {
  int64_t budget_bytes = 0;
  int64_t batch_texts = 0;
  int64_t batch_length = 0;  // in tokens, padding included
  MemoryParts parts;
  // Of the stages on that batch; fixed_bytes is parts.total().
  plan::Chain chain;
  plan::Plan plan;
  // With everything kept.
  int64_t unbounded_peak_bytes = 0;
  double unbounded_seconds = 0;

  // Lines for people: what is kept and recomputed, and what that costs.
  std::string explain() const;
};

// Plans batches of a run as they come: the largest first, then each that is
// larger or of another kind of attention than those before; a smaller one gets
// a plan that recomputes less where that fits too.
//
// The process must have libtorch's CPU memory from install_cpu_allocator(). The
// first plan sets its limit to what the budget leaves for large tensors, so
// that passing it is a BudgetError and nothing else.
class MemoryPlanner {
 public:
  // The model's weights are there, gradients and the optimizer's state
  // (AdamW's) are not yet. gradients_are_new: they are dropped after each
  // backward.
  MemoryPlanner(nn::BigBirdClassifier& model, int64_t budget_bytes,
                bool gradients_are_new);

  // Profiles the model on a batch of so many texts and tokens a text, or of as
  // many as an earlier one had, whichever is more, and makes its plan: some ten
  // passes. Throws NoPlanError with the least budget that would do.
  const MemoryPlan& plan(int64_t texts, int64_t length);

  // Sets the model's plan for a batch, made now if need be.
  void apply(int64_t texts, int64_t length);

 private:
  struct Planned {
    MemoryPlan plan;
    std::vector<int64_t> gradient_bytes;
    // For batches of fewer tokens, by shares of the planned one's.
    std::map<int64_t, std::shared_ptr<const plan::RegionPlan>> smaller;
  };

  Profile profile_batch(int64_t texts, int64_t length);
  const MemoryParts& parts();
  std::shared_ptr<const plan::RegionPlan> plan_for(Planned& planned,
                                                   int64_t share);

  nn::BigBirdClassifier& model_;
  const int64_t budget_bytes_;
  const bool gradients_are_new_;
  MemoryParts parts_;
  std::map<bool, Planned> by_attention_;
};

}  // namespace remat::train
