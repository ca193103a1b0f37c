#include <cstdio>

#include "remat/base/log.h"
#include "remat/cli/commands.h"
#include "remat/cli/plan_report.h"
#include "remat/cli/plan_request.h"

namespace remat::cli {
namespace {

constexpr int kNothingFits = 3;

void write_files(const PlanFlags& flags, const PlanRequest& request,
                 const PlanAnswer& answer) {
  if (!flags.output_chain.empty()) {
    plan::write_chain(flags.output_chain, request.chain);
    say("plan", "wrote the chain to " + flags.output_chain);
  }
  if (!flags.output.empty() && answer.plan.has_value()) {
    plan::write_schedule(flags.output, answer.plan->schedule);
    say("plan", "wrote the schedule to " + flags.output);
  }
}

void print_answer(const PlanFlags& flags, const PlanRequest& request,
                  const PlanAnswer& answer) {
  if (flags.json) {
    print_plan_json(request, answer);
    return;
  }
  if (answer.plan.has_value()) {
    print_plan(request, answer);
    if (flags.explain) {
      print_explanation(request, answer);
    }
  }
  if (flags.frontier) {
    print_frontier(answer);
  }
}

}  // namespace

int plan_command(const std::vector<std::string>& arguments) {
  PlanFlags flags;
  if (!parse_plan_flags(flags, arguments)) {
    return 0;
  }
  set_log_level(flags.quiet     ? LogLevel::kQuiet
                : flags.verbose ? LogLevel::kVerbose
                                : LogLevel::kNormal);
  if (flags.list_devices) {
    flags.json ? print_devices_json() : print_devices();
    return 0;
  }
  const PlanRequest request = make_plan_request(flags);
  const PlanAnswer answer = answer_plan(request, flags.frontier);
  write_files(flags, request, answer);
  print_answer(flags, request, answer);
  if (answer.plan.has_value()) {
    return 0;
  }
  std::fprintf(stderr, "%s\n", infeasible_text(request, answer).c_str());
  return kNothingFits;
}

}  // namespace remat::cli
