#include "remat/train/memory_plan.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/memory/cpu_allocator.h"
#include "remat/memory/process.h"
#include "remat/nn/bigbird_input.h"
#include "remat/plan/simulator.h"
#include "remat/profile/profile_stages.h"
#include "remat/runtime/random_state.h"

namespace remat::train {
namespace {

using plan::Chain;
using plan::Schedule;

// Plans are made for batches of so many shares of the largest.
constexpr int64_t kShares = 8;

// What small tensors, stacks and libraries take beyond what was there when the
// plan was made.
constexpr int64_t kSlackBytes = int64_t{8} << 20;

// Bounds of one solution: a few stages are planned to within a percent.
constexpr int64_t kPlanningBytes = int64_t{4} << 20;
constexpr double kPlanningOperations = 1e8;

// Steps of the search for the budget that gradients to come leave free.
constexpr int kBisections = 6;

// The peak of a pass in which the gradients of a stage's parameters are there
// from its backward on, and not before. Chain::fixed_bytes holds them all.
int64_t peak_with_new_gradients(const Chain& chain, const Schedule& schedule,
                                const std::vector<int64_t>& gradient_bytes) {
  const plan::Run run = plan::simulate(chain, schedule);
  int64_t to_come = 0;
  for (const int64_t bytes : gradient_bytes) {
    to_come += bytes;
  }
  int64_t peak = 0;
  for (size_t i = 0; i < schedule.actions.size(); ++i) {
    const plan::Action& action = schedule.actions[i];
    if (action.kind == plan::ActionKind::kBackward) {
      to_come -= gradient_bytes[static_cast<size_t>(action.stage)];
    }
    peak = std::max(peak, run.timeline[i].total_bytes - to_come);
  }
  return peak;
}

// A batch of a smaller share of the tokens: bytes and times are linear in them,
// or (full attention) fall faster.
Chain scaled(Chain chain, int64_t numerator, int64_t denominator) {
  const auto scale = [&](int64_t& bytes) {
    bytes = (bytes * numerator + denominator - 1) / denominator;
  };
  scale(chain.input_bytes);
  for (plan::Stage& stage : chain.stages) {
    scale(stage.output_bytes);
    scale(stage.saved_bytes);
    scale(stage.forward_workspace_bytes);
    // Of the backward some is the weights', whatever the batch.
  }
  return chain;
}

std::string format_ratio(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", ratio);
  return text;
}

// "2 times" of a stage that runs three.
std::string recomputed(int times) {
  return times == 0   ? "kept"
         : times == 1 ? "recomputed"
                      : str("recomputed ", times, " times");
}

// "embeddings kept, layer 0 to layer 7 recomputed, ..."
std::string list_stages(const Chain& chain, const Schedule& schedule) {
  const std::vector<int> forwards =
      plan::forwards_of(plan::region_plan(schedule));
  std::string text;
  for (size_t i = 0; i < forwards.size();) {
    size_t end = i + 1;
    while (end < forwards.size() && forwards[end] == forwards[i]) {
      ++end;
    }
    text += str(text.empty() ? "" : ", ", chain.stages[i].name);
    if (end - i > 1) {
      text += str(" to ", chain.stages[end - 1].name);
    }
    text += " " + recomputed(forwards[i] - 1);
    i = end;
  }
  return text;
}

struct Search {
  std::optional<plan::Plan> plan;
  // Without a plan: what would do.
  int64_t least_bytes = 0;
};

// The fastest plan whose peak is within the budget, if the gradients come as
// backward goes. Where they do, a plan for a larger budget may fit: the fastest
// such is found by halving.
Search search_plan(const Chain& chain,
                   const std::vector<int64_t>& gradient_bytes, bool are_new,
                   int64_t budget) {
  const auto solve = [&](int64_t bytes) {
    plan::SolveOptions options;
    options.budget_bytes = bytes;
    // Planning itself has to stay within the budget.
    options.max_table_bytes = kPlanningBytes;
    options.max_operations = kPlanningOperations;
    return plan::solve(chain, options);
  };
  const auto peak = [&](const plan::Plan& found) {
    return are_new
               ? peak_with_new_gradients(chain, found.schedule, gradient_bytes)
               : found.peak_bytes;
  };
  plan::Result result = solve(budget);
  int64_t fits = budget;
  if (!result) {
    fits = result.error().least_bytes;
    result = solve(fits);
    if (!result || peak(*result) > budget) {
      return {std::nullopt, result ? peak(*result) : fits};
    }
  }
  plan::Plan best = *result;
  if (are_new && best.extra_seconds > 0) {
    int64_t over = budget;
    for (const int64_t bytes : gradient_bytes) {
      over += bytes;
    }
    for (int i = 0; i < kBisections && over - fits > budget / 200; ++i) {
      const int64_t middle = fits + (over - fits) / 2;
      const plan::Result better = solve(middle);
      if (better && peak(*better) <= budget) {
        fits = middle;
        best = *better;
      } else {
        over = middle;
      }
    }
  }
  best.peak_bytes = peak(best);
  return {std::move(best), 0};
}

}  // namespace

MemoryParts measure_memory_parts(const nn::BigBirdClassifier& model) {
  release_cached_cpu_memory();
  const int64_t resident = resident_bytes();
  MemoryParts parts;
  for (const auto& [name, parameter] : model.named_parameters()) {
    parts.weights += static_cast<int64_t>(parameter.nbytes());
  }
  parts.gradients = parts.weights;
  parts.optimizer = 2 * parts.weights;
  parts.rest = std::max<int64_t>(resident - parts.weights, 0);
  parts.slack = kSlackBytes;
  return parts;
}

std::string MemoryPlan::explain() const {
  return str("budget     ", format_bytes(budget_bytes), ": weights ",
             format_bytes(parts.weights), ", gradients ",
             format_bytes(parts.gradients), ", optimizer ",
             format_bytes(parts.optimizer), ", code, texts and buffers ",
             format_bytes(parts.rest + parts.slack), "\nplan       ",
             list_stages(chain, plan.schedule), "\nprediction peak ",
             format_bytes(plan.peak_bytes), ", a step ",
             format_ratio(plan.seconds / unbounded_seconds),
             " times that of keeping everything, which needs ",
             format_bytes(unbounded_peak_bytes));
}

MemoryPlanner::MemoryPlanner(nn::BigBirdClassifier& model, int64_t budget_bytes,
                             bool gradients_are_new)
    : model_(model),
      budget_bytes_(budget_bytes),
      gradients_are_new_(gradients_are_new) {}

const MemoryPlan& MemoryPlanner::plan(int64_t texts, int64_t length) {
  const bool in_full = nn::attends_in_full(model_.config(), length);
  MemoryPlan made;
  made.budget_bytes = budget_bytes_;
  made.batch_texts = texts;
  made.batch_length = length;
  if (const auto known = by_attention_.find(in_full);
      known != by_attention_.end()) {
    // So that batches of both kinds, many texts and long ones, do not take
    // turns.
    made.batch_texts = std::max(texts, known->second.plan.batch_texts);
    made.batch_length = std::max(length, known->second.plan.batch_length);
  }
  const Profile profile = profile_batch(made.batch_texts, made.batch_length);
  made.parts = parts();
  made.chain = profile.chain;
  made.chain.fixed_bytes = made.parts.total();
  const Search everything = search_plan(made.chain, profile.gradient_bytes,
                                        gradients_are_new_, plan::kUnlimited);
  made.unbounded_peak_bytes = everything.plan->peak_bytes;
  made.unbounded_seconds = everything.plan->seconds;
  Search found = search_plan(made.chain, profile.gradient_bytes,
                             gradients_are_new_, budget_bytes_);
  if (!found.plan.has_value()) {
    throw NoPlanError(str(
        "[train] no plan fits ", format_bytes(budget_bytes_), ": the least is ",
        format_bytes(found.least_bytes), " for batches of ", made.batch_texts,
        " x ", format_thousands(made.batch_length),
        " tokens (weights, gradients and optimizer alone are ",
        format_bytes(made.parts.weights + made.parts.gradients +
                     made.parts.optimizer),
        ", code, texts and buffers ",
        format_bytes(made.parts.rest + made.parts.slack),
        "). Less takes a smaller --per-device-train-batch-size or a "
        "shorter --max-seq-length."));
  }
  made.plan = *std::move(found.plan);
  Planned& planned = by_attention_[in_full];
  planned = {std::move(made), profile.gradient_bytes, {}};
  planned.smaller[kShares] = std::make_shared<const plan::RegionPlan>(
      plan::region_plan(planned.plan.plan.schedule));
  return planned.plan;
}

// What tokens a batch has does not matter. The random blocks and masks of the
// batches to come are not touched.
Profile MemoryPlanner::profile_batch(int64_t texts, int64_t length) {
  const detail::RandomState random(std::vector<at::Tensor>{});
  const at::Tensor ids = at::arange(texts * length, at::kLong)
                             .remainder(model_.config().vocab_size)
                             .view({texts, length});
  nn::BigBirdStages run = model_.stages({ids, at::ones_like(ids), {}});
  ProfileOptions options;
  options.names = run.names;
  options.gradients_exist = !gradients_are_new_;
  Profile profile = profile_stages(run.stages, run.input_ids, options);
  random.restore();
  return profile;
}

// Once: what comes later is the run's own.
const MemoryParts& MemoryPlanner::parts() {
  if (parts_.total() == 0) {
    parts_ = measure_memory_parts(model_);
    const int64_t outside_arena =
        parts_.rest + parts_.weights - cpu_allocator_stats().resident_bytes;
    set_cpu_allocator_limit(budget_bytes_ - kSlackBytes - outside_arena);
  }
  return parts_;
}

void MemoryPlanner::apply(int64_t texts, int64_t length) {
  const bool in_full = nn::attends_in_full(model_.config(), length);
  const auto known = by_attention_.find(in_full);
  // Full attention takes the square of the length: fewer tokens may be more.
  if (known == by_attention_.end() || texts > known->second.plan.batch_texts ||
      length > known->second.plan.batch_length) {
    plan(texts, length);
  }
  Planned& planned = by_attention_.at(in_full);
  const int64_t tokens = texts * length;
  const int64_t most = planned.plan.batch_texts * planned.plan.batch_length;
  model_.set_plan(plan_for(planned, (tokens * kShares + most - 1) / most));
}

std::shared_ptr<const plan::RegionPlan> MemoryPlanner::plan_for(
    Planned& planned, int64_t share) {
  std::shared_ptr<const plan::RegionPlan>& known = planned.smaller[share];
  if (known == nullptr) {
    const Search found =
        search_plan(scaled(planned.plan.chain, share, kShares),
                    planned.gradient_bytes, gradients_are_new_, budget_bytes_);
    // The plan for more tokens fits fewer.
    known = found.plan.has_value()
                ? std::make_shared<const plan::RegionPlan>(
                      plan::region_plan(found.plan->schedule))
                : planned.smaller.at(kShares);
  }
  return known;
}

}  // namespace remat::train
