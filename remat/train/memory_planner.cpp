#include "remat/train/memory_planner.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/base/log.h"
#include "remat/nn/bigbird_input.h"
#include "remat/profile/fit_memory.h"
#include "remat/runtime/random_state.h"

namespace remat::train {
namespace {

// Plans are made for batches of so many shares of the largest.
constexpr int64_t kShares = 8;

}  // namespace

MemoryPlanner::MemoryPlanner(nn::BigBirdClassifier& model, int64_t budget_bytes,
                             bool gradients_are_new,
                             std::optional<ProfileCache> cache)
    : model_(model),
      budget_bytes_(budget_bytes),
      gradients_are_new_(gradients_are_new),
      cache_(std::move(cache)) {}

const BatchPlan& MemoryPlanner::plan(int64_t texts, int64_t length) {
  const bool in_full = nn::attends_in_full(model_.config(), length);
  BatchPlan made{.texts = texts, .length = length, .memory = {}};
  if (const auto known = by_attention_.find(in_full);
      known != by_attention_.end()) {
    // So that batches of both kinds, many texts and long ones, do not take
    // turns.
    made.texts = std::max(texts, known->second.plan.texts);
    made.length = std::max(length, known->second.plan.length);
  }
  Profile profile = profile_batch(made.texts, made.length);
  try {
    made.memory =
        plan_memory(profile, parts(), budget_bytes_, gradients_are_new_);
  } catch (const NoPlanError& error) {
    throw NoPlanError(
        str(error.what(), ", for batches of ", made.texts, " x ",
            format_thousands(made.length),
            " tokens. Less takes a smaller --per-device-train-batch-size or a "
            "shorter --max-seq-length."),
        error.least_bytes());
  }
  if (by_attention_.empty()) {
    hold_memory(budget_bytes_, made.memory.parts.slack);
  }
  Planned& planned = by_attention_[in_full];
  planned = {std::move(made), std::move(profile), {}};
  planned.smaller[kShares] = planned.plan.memory.regions;
  return planned.plan;
}

// What tokens a batch has does not matter. The random blocks and masks of the
// batches to come are not touched.
Profile MemoryPlanner::profile_batch(int64_t texts, int64_t length) {
  const detail::RandomState random(std::vector<at::Tensor>{});
  const at::Tensor ids = at::arange(texts * length, at::kLong)
                             .remainder(model_.config().vocab_size)
                             .view({texts, length});
  const nn::BigBirdStages run = model_.stages({ids, at::ones_like(ids), {}});
  bool is_measured = false;
  const auto measure = [&] {
    is_measured = true;
    ProfileOptions options;
    options.gradients_exist = !gradients_are_new_;
    return profile_stages(run.stages, run.input_ids, options);
  };
  Profile profile =
      cache_.has_value()
          ? cache_->get(profile_subject(run, texts, length), measure)
          : measure();
  if (!is_measured && !parts_.has_value()) {
    // What the process holds besides is measured next.
    warm_up_stages(run.stages, run.input_ids);
  }
  random.restore();
  return profile;
}

std::string MemoryPlanner::profile_subject(const nn::BigBirdStages& run,
                                           int64_t texts,
                                           int64_t length) const {
  nlohmann::ordered_json model =
      nlohmann::ordered_json::parse(nn::to_json(model_.config()));
  model["stages"] = run.stages.size();
  model["texts"] = texts;
  model["tokens"] = length;
  model["dtype"] = c10::toString(model_.parameters().front().scalar_type());
  model["gradients_are_new"] = gradients_are_new_;
  return model.dump();
}

// Once: what comes later is the run's own.
const MemoryParts& MemoryPlanner::parts() {
  if (!parts_.has_value()) {
    parts_ = measure_memory_parts(model_.parameters());
  }
  return *parts_;
}

void MemoryPlanner::apply(int64_t texts, int64_t length) {
  const bool in_full = nn::attends_in_full(model_.config(), length);
  const auto known = by_attention_.find(in_full);
  // Full attention takes the square of the length: fewer tokens may be more.
  if (known == by_attention_.end() || texts > known->second.plan.texts ||
      length > known->second.plan.length) {
    plan(texts, length);
  }
  Planned& planned = by_attention_.at(in_full);
  const int64_t tokens = texts * length;
  const int64_t most = planned.plan.texts * planned.plan.length;
  model_.set_plan(plan_for(planned, (tokens * kShares + most - 1) / most));
}

std::shared_ptr<const plan::RegionPlan> MemoryPlanner::plan_for(
    Planned& planned, int64_t share) {
  std::shared_ptr<const plan::RegionPlan>& known = planned.smaller[share];
  if (known == nullptr) {
    try {
      known = plan_memory(scaled(planned.profile, share, kShares), parts(),
                          budget_bytes_, gradients_are_new_)
                  .regions;
    } catch (const NoPlanError&) {
      // The plan for more tokens fits fewer.
      known = planned.smaller.at(kShares);
    }
  }
  return known;
}

}  // namespace remat::train
