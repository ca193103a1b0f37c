#include "remat/profile/memory_plan.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/plan/simulator.h"
#include "remat/plan/stage_names.h"

namespace remat {
namespace {

using plan::Chain;
using plan::Schedule;

// Bounds of one solution: a few stages are planned to within a percent, and
// planning itself has to stay within the budget.
constexpr int64_t kPlanningBytes = int64_t{4} << 20;
constexpr double kPlanningOperations = 1e8;

// Steps of the search for the budget that gradients to come leave free.
constexpr int kBisections = 6;

int64_t sum(const std::vector<int64_t>& values) {
  int64_t total = 0;
  for (const int64_t value : values) {
    total += value;
  }
  return total;
}

// The peak of a pass in which the gradients of a stage's parameters are there
// from its backward on, and not before. Chain::fixed_bytes holds them all.
int64_t peak_with_new_gradients(const Chain& chain, const Schedule& schedule,
                                const std::vector<int64_t>& gradient_bytes) {
  const plan::Run run = plan::simulate(chain, schedule);
  int64_t to_come = sum(gradient_bytes);
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

std::string format_number(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", number);
  return text;
}

// "kept embeddings and head; recomputed layer 0-7", by how often.
std::string list_stages(const Chain& chain, const plan::RegionPlan& regions) {
  std::map<int, std::vector<std::string>> by_forwards;
  const std::vector<int> forwards = plan::forwards_of(regions);
  for (size_t i = 0; i < forwards.size(); ++i) {
    by_forwards[forwards[i]].push_back(chain.stages[i].name);
  }
  std::string text;
  for (const auto& [times, names] : by_forwards) {
    text += str(text.empty() ? "" : "; ", times == 1 ? "kept" : "recomputed",
                times > 2 ? str(" ", times - 1, " times") : "", " ",
                plan::join_stage_names(names));
  }
  return text;
}

class Search {
 public:
  Search(const Chain& chain, const std::vector<int64_t>& gradient_bytes,
         bool gradients_are_new)
      : chain_(chain),
        gradient_bytes_(gradient_bytes),
        are_new_(gradients_are_new) {}

  // The fastest plan whose peak is within the budget. Where gradients are new,
  // a plan for a larger budget may fit: the fastest such is found by halving.
  // Without one, least_bytes() would do.
  std::optional<plan::Plan> within(int64_t budget) {
    plan::Result result = solve(budget);
    int64_t fits = budget;
    if (!result) {
      fits = result.error().least_bytes;
      result = solve(fits);
      if (!result || peak(*result) > budget) {
        least_bytes_ = result ? peak(*result) : fits;
        return std::nullopt;
      }
    }
    plan::Plan best = *result;
    if (are_new_ && best.extra_seconds > 0) {
      int64_t over = budget + sum(gradient_bytes_);
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
    return best;
  }

  int64_t least_bytes() const { return least_bytes_; }

 private:
  plan::Result solve(int64_t bytes) const {
    plan::SolveOptions options;
    options.budget_bytes = bytes;
    options.max_table_bytes = kPlanningBytes;
    options.max_operations = kPlanningOperations;
    return plan::solve(chain_, options);
  }

  int64_t peak(const plan::Plan& found) const {
    return are_new_ ? peak_with_new_gradients(chain_, found.schedule,
                                              gradient_bytes_)
                    : found.peak_bytes;
  }

  const Chain& chain_;
  const std::vector<int64_t>& gradient_bytes_;
  const bool are_new_;
  int64_t least_bytes_ = 0;
};

}  // namespace

std::string MemoryPlan::explain() const {
  return str("budget     ", format_bytes(budget_bytes), ": weights ",
             format_bytes(parts.weights), ", gradients ",
             format_bytes(parts.gradients), ", optimizer ",
             format_bytes(parts.optimizer), ", code, texts and buffers ",
             format_bytes(parts.rest + parts.slack), "\nplan       ",
             list_stages(chain, *regions), "\nprediction peak ",
             format_bytes(plan.peak_bytes), ", a step of ",
             format_number(step_seconds()), " s, ",
             plan.extra_seconds > 0
                 ? format_number(step_seconds() / unbounded_step_seconds()) +
                       " times that"
                 : "the same as that",
             " of keeping everything, which needs ",
             format_bytes(unbounded_peak_bytes));
}

double MemoryPlan::step_seconds() const {
  return static_cast<double>(passes) * plan.seconds + update_seconds;
}

double MemoryPlan::unbounded_step_seconds() const {
  return static_cast<double>(passes) * unbounded_seconds + update_seconds;
}

MemoryPlan plan_memory(const Profile& profile, const MemoryParts& parts,
                       int64_t budget_bytes, bool gradients_are_new) {
  MemoryPlan made;
  made.budget_bytes = budget_bytes;
  made.parts = parts;
  made.chain = profile.chain;
  made.chain.fixed_bytes = parts.total() + profile.shared_bytes;
  Search search(made.chain, profile.gradient_bytes, gradients_are_new);
  const std::optional<plan::Plan> everything = search.within(plan::kUnlimited);
  made.unbounded_peak_bytes = everything->peak_bytes;
  made.unbounded_seconds = everything->seconds;
  std::optional<plan::Plan> found = search.within(budget_bytes);
  if (!found.has_value()) {
    throw NoPlanError(
        str("[memory] no plan fits ", format_bytes(budget_bytes),
            ": the least is ", format_bytes(search.least_bytes()),
            " (weights, gradients and optimizer alone are ",
            format_bytes(parts.weights + parts.gradients + parts.optimizer),
            ", code, texts and buffers ",
            format_bytes(parts.rest + parts.slack), ")"),
        search.least_bytes());
  }
  made.plan = *std::move(found);
  made.regions = std::make_shared<const plan::RegionPlan>(
      plan::region_plan(made.plan.schedule));
  return made;
}

Profile scaled(Profile profile, int64_t numerator, int64_t denominator) {
  const auto scale = [&](int64_t& bytes) {
    bytes = (bytes * numerator + denominator - 1) / denominator;
  };
  const double share =
      static_cast<double>(numerator) / static_cast<double>(denominator);
  scale(profile.chain.input_bytes);
  scale(profile.shared_bytes);
  for (plan::Stage& stage : profile.chain.stages) {
    scale(stage.output_bytes);
    scale(stage.saved_bytes);
    scale(stage.forward_workspace_bytes);
    // Of the backward some is the weights', whatever the batch.
    stage.forward_seconds *= share;
    stage.backward_seconds *= share;
  }
  return profile;
}

}  // namespace remat
