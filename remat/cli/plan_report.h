// The answer of `remat plan`: for people, and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "remat/cli/plan_request.h"
#include "remat/plan/frontier.h"
#include "remat/plan/simulator.h"
#include "remat/plan/solve.h"

namespace remat::cli {

// What became of a stage.
struct StageFate {
  int recomputed = 0;  // how often it ran again
  std::string option;  // by which it was kept in the end; "": as it is
};

struct PlanAnswer {
  std::optional<plan::Plan> plan;  // none: nothing fits
  // With which the solver has a plan.
  int64_t least_bytes = 0;
  int64_t keep_all_bytes = 0;
  double least_seconds = 0;
  // Of the plan, where there is one.
  plan::Run run;
  std::vector<StageFate> fates;
  plan::Frontier frontier;  // if asked for
};

PlanAnswer answer_plan(const PlanRequest& request, bool with_frontier);

// "backward of layer 5".
std::string action_text(const plan::Chain& chain, const plan::Action& action);

// "1.52 s", "40.2 ms", "12.3 us".
std::string format_seconds(double seconds);

// To standard output.
void print_plan(const PlanRequest& request, const PlanAnswer& answer);
void print_explanation(const PlanRequest& request, const PlanAnswer& answer);
void print_frontier(const PlanAnswer& answer);
void print_plan_json(const PlanRequest& request, const PlanAnswer& answer);

// Why nothing fits and what would, for standard error.
std::string infeasible_text(const PlanRequest& request,
                            const PlanAnswer& answer);

void print_devices();
void print_devices_json();

}  // namespace remat::cli
