#include <cstdio>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/cli/plan_report.h"
#include "remat/plan/bounds.h"

namespace remat::cli {
namespace {

std::vector<StageFate> fates_of(const plan::Chain& chain,
                                const plan::Schedule& schedule,
                                const plan::Run& run) {
  std::vector<StageFate> fates(chain.stages.size());
  for (size_t i = 0; i < fates.size(); ++i) {
    fates[i].recomputed = run.recomputed[i];
  }
  for (const plan::Action& action : schedule.actions) {
    if (action.kind == plan::ActionKind::kForwardSave) {
      // The last one is what the backward has.
      fates[action.stage].option =
          action.way == 0
              ? ""
              : chain.stages[action.stage].options[action.way - 1].name;
    }
  }
  return fates;
}

}  // namespace

PlanAnswer answer_plan(const PlanRequest& request, bool with_frontier) {
  PlanAnswer answer;
  answer.keep_all_bytes = plan::keep_all_bytes(request.chain);
  answer.least_seconds = plan::least_seconds(request.chain);
  const plan::Result result = plan::solve(request.chain, request.options);
  if (result) {
    answer.plan = *result;
    answer.run = plan::simulate(request.chain, result->schedule);
    answer.fates = fates_of(request.chain, result->schedule, answer.run);
    answer.least_bytes = plan::least_budget(request.chain);
  } else {
    answer.least_bytes = result.error().least_bytes;
  }
  if (with_frontier) {
    plan::FrontierOptions options;
    options.threads = request.options.threads;
    answer.frontier = plan::frontier(request.chain, options);
  }
  return answer;
}

std::string action_text(const plan::Chain& chain, const plan::Action& action) {
  const auto stage = [&] {
    const std::string& name = chain.stages[action.stage].name;
    return name.empty() ? str("stage ", action.stage) : name;
  };
  switch (action.kind) {
    case plan::ActionKind::kForwardSave:
    case plan::ActionKind::kForwardKeep:
    case plan::ActionKind::kForwardDrop:
      return "the forward of " + stage();
    case plan::ActionKind::kLoss:
      return "the loss";
    case plan::ActionKind::kBackward:
      return "the backward of " + stage();
    default:
      return str(plan::name_of(action.kind), " of x_", action.stage);
  }
}

std::string format_seconds(double seconds) {
  const char* unit = "s";
  double value = seconds;
  if (value < 5e-9) {
    return "0 s";
  }
  if (value < 0.9995e-3) {
    value *= 1e6;
    unit = "us";
  } else if (value < 0.9995) {
    value *= 1e3;
    unit = "ms";
  }
  char text[64];
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::snprintf(text, sizeof text, "%.*f %s", decimals, value, unit);
  return text;
}

std::string infeasible_text(const PlanRequest& request,
                            const PlanAnswer& answer) {
  const int64_t budget = request.options.budget_bytes;
  const bool is_optimal = request.options.solver == "optimal";
  std::string text = str(
      "[plan] no plan ", is_optimal ? "" : "of " + request.options.solver + " ",
      "fits ", format_bytes(budget), ": the least is ",
      format_bytes(answer.least_bytes), " (", answer.least_bytes, " bytes; ",
      format_bytes(request.chain.fixed_bytes),
      request.estimated.has_value()
          ? " of them are weights, gradients and optimizer)."
          : " of them are there whatever the plan).");
  if (!is_optimal) {
    return text + str("\n       --solver optimal has one from ",
                      format_bytes(plan::least_budget(request.chain)), " on.");
  }
  std::string smaller;
  for (const SmallerRequest& other : smaller_requests(request)) {
    smaller += str(smaller.empty() ? "" : ", ", other.flags, " (least ",
                   format_bytes(other.least_bytes),
                   other.least_bytes <= budget ? ", fits" : "", ")");
  }
  return smaller.empty() ? text : text + "\n       Smaller: " + smaller + ".";
}

}  // namespace remat::cli
