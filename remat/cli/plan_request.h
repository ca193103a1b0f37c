// What `remat plan` is asked: its flags, and the chain that they mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "remat/estimate/device.h"
#include "remat/estimate/estimate.h"
#include "remat/plan/chain.h"
#include "remat/plan/solve.h"

namespace remat::cli {

struct PlanFlags {
  std::string chain, model, device, memory;
  std::optional<int64_t> seq_length;
  int64_t batch_size = 1;
  std::string dtype = "float32";
  bool bf16 = false;
  bool fp16 = false;
  std::string head;
  std::string attention = "automatic";
  std::string offload = "none";
  std::string solver = "optimal";
  std::optional<int64_t> every_n_layers, segments, threads;
  std::string output, output_chain;
  bool explain = false;
  bool frontier = false;
  bool list_devices = false;
  bool json = false;
  bool quiet = false;
  bool verbose = false;
};

// Adds and parses them. False if the help was asked for, which is printed then.
bool parse_plan_flags(PlanFlags& flags,
                      const std::vector<std::string>& arguments);

// A model on a machine, as far as the chain comes from one.
struct Estimated {
  estimate::Model model;
  estimate::Device device;
  estimate::Workload work;
  estimate::Estimate estimate;
};

struct PlanRequest {
  plan::Chain chain;
  plan::SolveOptions options;
  std::optional<Estimated> estimated;  // without: a chain file
};

// Reads the files. Throws UsageError that names flag, value and remedy.
PlanRequest make_plan_request(const PlanFlags& flags);

// Changes of the flags that need less memory, with the least budget of each:
// for what does not fit. Nothing for a chain file.
struct SmallerRequest {
  std::string flags;
  int64_t least_bytes = 0;
};
std::vector<SmallerRequest> smaller_requests(const PlanRequest& request);

}  // namespace remat::cli
