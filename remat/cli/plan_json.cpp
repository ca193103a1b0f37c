#include <cstdio>
#include <nlohmann/json.hpp>

#include "remat/cli/plan_report.h"

namespace remat::cli {
namespace {

using Json = nlohmann::ordered_json;

void print_line(const Json& json) {
  std::printf(
      "%s\n",
      json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

Json estimate_json(const Estimated& estimated) {
  const estimate::Estimate& made = estimated.estimate;
  Json json;
  json["model_type"] = estimate::name_of(estimated.model.family);
  json["head"] = estimate::name_of(estimated.model.head);
  json["parameters"] = made.parameters.total;
  json["device"] = estimated.device.name;
  json["device_memory_bytes"] = estimated.device.memory_bytes;
  json["dtype"] = estimate::name_of(estimated.work.dtype);
  json["batch_size"] = estimated.work.batch_size;
  json["sequence_length"] = estimated.work.sequence_length;
  json["padded_length"] = made.padded_length;
  json["weights_bytes"] = made.weights_bytes;
  json["gradients_bytes"] = made.gradients_bytes;
  json["optimizer_bytes"] = made.optimizer_bytes;
  json["assumptions"] = made.assumptions;
  return json;
}

Json stages_json(const plan::Chain& chain,
                 const std::vector<StageFate>& fates) {
  Json stages = Json::array();
  for (size_t i = 0; i < chain.stages.size(); ++i) {
    const plan::Stage& stage = chain.stages[i];
    Json entry{{"name", stage.name},
               {"forward_seconds", stage.forward_seconds},
               {"backward_seconds", stage.backward_seconds},
               {"output_bytes", stage.output_bytes},
               {"saved_bytes", stage.saved_bytes}};
    if (!fates.empty()) {
      entry["recomputed"] = fates[i].recomputed;
      entry["option"] =
          fates[i].option.empty() ? Json() : Json(fates[i].option);
    }
    stages.push_back(std::move(entry));
  }
  return stages;
}

void add_plan(Json& json, const PlanRequest& request,
              const PlanAnswer& answer) {
  const plan::Plan& plan = *answer.plan;
  const auto peak = static_cast<size_t>(answer.run.peak_action);
  const plan::Action& action = plan.schedule.actions[peak];
  json["peak_bytes"] = plan.peak_bytes;
  json["peak_at"] = action_text(request.chain, action);
  for (int i = 0; i < plan::kUses; ++i) {
    json["peak_use"][std::string(plan::name_of(static_cast<plan::Use>(i)))] =
        answer.run.timeline[peak].bytes[i];
  }
  json["seconds"] = plan.seconds;
  json["extra_seconds"] = plan.extra_seconds;
  json["optimality_gap"] = plan.optimality_gap;
  json["coarsened"] = plan.coarsened;
}

}  // namespace

void print_plan_json(const PlanRequest& request, const PlanAnswer& answer) {
  Json json;
  json["fits"] = answer.plan.has_value();
  json["budget_bytes"] = request.options.budget_bytes;
  json["least_bytes"] = answer.least_bytes;
  json["fixed_bytes"] = request.chain.fixed_bytes;
  json["keep_all_bytes"] = answer.keep_all_bytes;
  json["keep_all_seconds"] = answer.least_seconds;
  json["solver"] = request.options.solver;
  if (answer.plan.has_value()) {
    add_plan(json, request, answer);
  } else {
    json["smaller"] = Json::array();
    for (const SmallerRequest& other : smaller_requests(request)) {
      json["smaller"].push_back(
          {{"flags", other.flags}, {"least_bytes", other.least_bytes}});
    }
  }
  json["stages"] = stages_json(request.chain, answer.fates);
  if (!answer.frontier.points.empty()) {
    json["frontier_is_exact"] = answer.frontier.exact;
    for (const plan::FrontierPoint& point : answer.frontier.points) {
      json["frontier"].push_back({{"budget_bytes", point.budget_bytes},
                                  {"seconds", point.seconds},
                                  {"extra_seconds", point.extra_seconds}});
    }
  }
  json["estimate"] = request.estimated.has_value()
                         ? estimate_json(*request.estimated)
                         : Json();
  print_line(json);
}

void print_devices_json() {
  Json json = Json::array();
  for (const estimate::Device& device : estimate::known_devices()) {
    json.push_back(Json::parse(estimate::to_json(device)));
  }
  print_line(json);
}

}  // namespace remat::cli
