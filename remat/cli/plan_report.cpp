#include "remat/cli/plan_report.h"

#include <algorithm>
#include <cstdio>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/plan/bounds.h"

namespace remat::cli {
namespace {

// Rows of the table of budgets.
constexpr size_t kMostPoints = 16;
// Rows of the table of stages, before unequal ones are put together.
constexpr size_t kMostGroups = 40;
constexpr size_t kWide = 79;

void line(const char* label, const std::string& text) {
  std::printf("%-10s %s\n", label, text.c_str());
}

std::string millions(int64_t count) {
  char text[48];
  if (count < 1'000'000) {
    return format_thousands(count);
  }
  std::snprintf(text, sizeof text, "%.1f M", static_cast<double>(count) / 1e6);
  return text;
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, share < 0.0995 ? "%.1f%%" : "%.0f%%",
                100 * share);
  return text;
}

// Behind what it takes anyway: "0.11 s (7.6%)".
std::string extra_text(double extra, double least) {
  return least > 0
             ? str(format_seconds(extra), " (", percent(extra / least), ")")
             : format_seconds(extra);
}

void print_model(const Estimated& estimated) {
  const estimate::Model& model = estimated.model;
  const estimate::Estimate& made = estimated.estimate;
  line("model",
       str(estimate::name_of(model.family), ", ", model.layers, " layers x ",
           model.hidden_size, ", ", millions(made.parameters.total),
           " parameters; head: ", estimate::name_of(model.head)));
  const int64_t length = estimated.work.sequence_length;
  line(
      "batch",
      str(estimated.work.batch_size, " x ", format_thousands(length), " tokens",
          made.padded_length == length
              ? ""
              : str(" (padded to ", format_thousands(made.padded_length), ")"),
          " in ", estimate::name_of(estimated.work.dtype)));
  line("device", str(estimated.device.name, ", ",
                     format_bytes(estimated.device.memory_bytes), " (",
                     estimated.device.source, ")"));
  line("fixed", str(format_bytes(made.chain.fixed_bytes), ": weights ",
                    format_bytes(made.weights_bytes), ", gradients ",
                    format_bytes(made.gradients_bytes), ", optimizer ",
                    format_bytes(made.optimizer_bytes)));
}

bool is_equal(const plan::Stage& a, const plan::Stage& b) {
  return a.forward_seconds == b.forward_seconds &&
         a.backward_seconds == b.backward_seconds &&
         a.output_bytes == b.output_bytes && a.saved_bytes == b.saved_bytes;
}

// "layer 3" and "layer 7" -> "layer 3-7".
std::string group_name(const plan::Chain& chain, size_t first, size_t last) {
  const auto name = [&](size_t i) {
    return chain.stages[i].name.empty() ? str("stage ", i)
                                        : chain.stages[i].name;
  };
  const std::string from = name(first), to = name(last);
  if (first == last) {
    return from;
  }
  const size_t digits = to.find_last_not_of("0123456789") + 1;
  if (digits < to.size() && from.compare(0, digits, to, 0, digits) == 0) {
    return from + "-" + to.substr(digits);
  }
  return from + " - " + to;
}

std::string fate_text(const StageFate& fate) {
  std::string text = fate.recomputed == 0 ? "kept" : "runs again";
  if (fate.recomputed > 1) {
    text += str(" ", fate.recomputed, " times");
  }
  if (!fate.option.empty()) {
    text += fate.recomputed == 0 ? ": " + fate.option
                                 : ", then kept: " + fate.option;
  }
  return text;
}

struct Group {
  size_t first = 0, last = 0;
};

// Neighbours with the same fate, and, if asked for, the same costs.
std::vector<Group> groups_of(const plan::Chain& chain,
                             const std::vector<StageFate>& fates,
                             bool of_equal_costs) {
  std::vector<Group> groups;
  for (size_t i = 0; i < chain.stages.size(); ++i) {
    if (i > 0 && fates[i].recomputed == fates[i - 1].recomputed &&
        fates[i].option == fates[i - 1].option &&
        (!of_equal_costs || is_equal(chain.stages[i - 1], chain.stages[i]))) {
      groups.back().last = i;
    } else {
      groups.push_back({i, i});
    }
  }
  return groups;
}

void print_stages(const plan::Chain& chain,
                  const std::vector<StageFate>& fates) {
  std::vector<Group> groups = groups_of(chain, fates, true);
  const bool is_long = groups.size() > kMostGroups;
  if (is_long) {
    groups = groups_of(chain, fates, false);
  }
  std::printf("\n%-22s %5s %9s %9s %9s  %s\n", "stage", "count", "forward",
              "backward", "saved",
              is_long ? "what becomes of it (sums)" : "what becomes of it");
  for (const Group& group : groups) {
    double forward = 0, backward = 0;
    int64_t saved = 0;
    for (size_t i = group.first; i <= (is_long ? group.last : group.first);
         ++i) {
      forward += chain.stages[i].forward_seconds;
      backward += chain.stages[i].backward_seconds;
      saved += chain.stages[i].saved_bytes;
    }
    std::printf("%-22s %5zu %9s %9s %9s  %s\n",
                group_name(chain, group.first, group.last).c_str(),
                group.last - group.first + 1, format_seconds(forward).c_str(),
                format_seconds(backward).c_str(), format_bytes(saved).c_str(),
                fate_text(fates[group.first]).c_str());
  }
}

// Words in lines that begin below the label.
void print_wrapped(const std::string& text, const std::string& bullet) {
  std::string row = "           " + bullet;
  const std::string indent(row.size(), ' ');
  bool is_new = true;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!is_new && row.size() + 1 + word.size() > kWide) {
      std::printf("%s\n", row.c_str());
      row = indent;
      is_new = true;
    }
    row += (is_new ? "" : " ") + word;
    is_new = false;
    at = end + 1;
  }
  std::printf("%s\n", row.c_str());
}

// Lists of layers are the user's, and values move only to a store.
bool is_applicable(const std::string& solver, const plan::Chain& chain) {
  return solver != "layers" && (solver != "two-level" || !chain.stores.empty());
}

// What each solver makes of the budget.
void print_solvers(const PlanRequest& request, const plan::Plan& known) {
  std::printf("\n%-14s %9s %9s %18s\n", "solver", "peak", "step", "extra");
  for (const std::string& name : plan::solver_names()) {
    if (!is_applicable(name, request.chain)) {
      continue;
    }
    plan::SolveOptions options = request.options;
    options.solver = name;
    const plan::Result result = name == known.solver
                                    ? plan::Result(known)
                                    : plan::solve(request.chain, options);
    if (!result) {
      std::printf("%-14s needs %s\n", name.c_str(),
                  format_bytes(result.error().least_bytes).c_str());
      continue;
    }
    std::printf("%-14s %9s %9s %18s\n", name.c_str(),
                format_bytes(result->peak_bytes).c_str(),
                format_seconds(result->seconds).c_str(),
                extra_text(result->extra_seconds,
                           result->seconds - result->extra_seconds)
                    .c_str());
  }
}

}  // namespace

void print_plan(const PlanRequest& request, const PlanAnswer& answer) {
  const plan::Chain& chain = request.chain;
  const plan::Plan& plan = *answer.plan;
  if (request.estimated.has_value()) {
    print_model(*request.estimated);
  } else {
    line("chain",
         str(chain.length(), " stages; ", format_bytes(chain.fixed_bytes),
             " are there whatever the plan"));
  }
  const int64_t budget = request.options.budget_bytes;
  if (request.estimated.has_value() &&
      budget > request.estimated->device.memory_bytes) {
    line("note", str("the budget, ", format_bytes(budget),
                     ", is more than the device has"));
  }
  line("fits", str("yes: ", format_bytes(plan.peak_bytes), " of ",
                   format_bytes(budget), ", at ",
                   action_text(chain, plan.schedule.actions[static_cast<size_t>(
                                          answer.run.peak_action)])));
  line("step", plan.extra_seconds > 0
                   ? str(format_seconds(plan.seconds), ", ",
                         extra_text(plan.extra_seconds, answer.least_seconds),
                         " of it extra; keeping everything needs ",
                         format_bytes(answer.keep_all_bytes))
                   : str(format_seconds(plan.seconds),
                         ", nothing extra: everything is kept"));
  line("least", str(format_bytes(answer.least_bytes),
                    " is the least that a plan can do with"));
  print_stages(chain, answer.fates);
  if (request.estimated.has_value()) {
    std::printf("\nThis is an estimate; nothing was %s. Assumed:\n",
                request.estimated->device.is_cpu ? "trained" : "measured");
    for (const std::string& text : request.estimated->estimate.assumptions) {
      print_wrapped(text, "- ");
    }
  }
}

void print_explanation(const PlanRequest& request, const PlanAnswer& answer) {
  const plan::Plan& plan = *answer.plan;
  const plan::Moment& peak =
      answer.run.timeline[static_cast<size_t>(answer.run.peak_action)];
  std::printf("\n");
  std::string uses;
  for (int i = 0; i < plan::kUses; ++i) {
    if (peak.bytes[i] > 0) {
      uses += str(uses.empty() ? "" : ", ",
                  plan::name_of(static_cast<plan::Use>(i)), " ",
                  format_bytes(peak.bytes[i]));
    }
  }
  line("peak", uses);
  line("solver", str(plan.solver, ", ", format_seconds(plan.solve_seconds),
                     plan.optimality_gap > 0
                         ? str("; of the extra time at most ",
                               percent(plan.optimality_gap), " could be saved")
                         : "; no plan of its class is faster"));
  if (!plan.coarsened.empty()) {
    line("", plan.coarsened);
  }
  const double bound =
      plan::least_extra_seconds(request.chain, request.options.budget_bytes);
  line("bound",
       str("no plan at all has less than ", format_seconds(bound),
           " extra; this one has ", format_seconds(plan.extra_seconds)));
  print_solvers(request, plan);
  std::printf("\n");
  line("schedule",
       str(plan.schedule.actions.size(), " actions (docs/plan-format.md)"));
  print_wrapped(plan::to_text(plan.schedule), "");
}

void print_frontier(const PlanAnswer& answer) {
  const auto& points = answer.frontier.points;
  std::printf("\n%-10s %9s %18s\n", "memory", "step", "extra");
  const size_t count = std::min(points.size(), kMostPoints);
  for (size_t i = 0; i < count; ++i) {
    const plan::FrontierPoint& point =
        points[count < 2 ? 0 : i * (points.size() - 1) / (count - 1)];
    std::printf("%-10s %9s %18s\n", format_bytes(point.budget_bytes).c_str(),
                format_seconds(point.seconds).c_str(),
                extra_text(point.extra_seconds, answer.least_seconds).c_str());
  }
  if (!answer.frontier.exact) {
    std::printf("(sizes rounded up: a plan for one budget can be faster)\n");
  }
  if (count < points.size()) {
    std::printf("(%zu of %zu budgets; --json has all)\n", count, points.size());
  }
}

void print_devices() {
  std::printf("%-12s %9s %10s %9s %9s %9s  %s\n", "device", "memory",
              "bandwidth", "float32", "bfloat16", "float16", "source");
  for (const estimate::Device& device : estimate::known_devices()) {
    std::printf("%-12s %9s %5.0f GB/s", device.name.c_str(),
                format_bytes(device.memory_bytes).c_str(),
                device.memory_bytes_per_second / 1e9);
    for (const estimate::Dtype dtype : estimate::kDtypes) {
      const double rate = device.peak_flops(dtype);
      std::printf(" %9s", rate > 0 ? str(rate / 1e12, " T").c_str() : "none");
    }
    std::printf("  %s\n", device.source.c_str());
  }
  std::printf(
      "%-12s measured when it is asked for\n\n"
      "Rates are peaks of dense matrix products, in floating-point operations "
      "a\nsecond. docs/cost-model.md has the file that describes another "
      "device.\n",
      "this-machine");
}

}  // namespace remat::cli
