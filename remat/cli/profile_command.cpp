#include <ATen/Functions.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/base/log.h"
#include "remat/cli/commands.h"
#include "remat/cli/common_flags.h"
#include "remat/cli/plan_report.h"
#include "remat/nn/bigbird.h"
#include "remat/profile/fit_memory.h"
#include "remat/profile/profile_stages.h"
#include "remat/train/model_folder.h"

namespace remat::cli {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  remat profile --model config.json --seq-length 4096 --batch-size 2 \\\n"
    "      --output profile.json\n"
    "  remat plan --profile profile.json --memory 400MiB --frontier\n\n"
    "Texts and weights are random: neither changes what a step costs.";

struct ProfileRequest {
  std::string model;
  std::optional<int64_t> seq_length;
  int64_t batch_size = 1;
  int64_t repetitions = 3;
  std::string output;
  CommonOptions common;
};

void check_count(const char* flag, int64_t value, int64_t most) {
  if (value < 1 || value > most) {
    fail_usage("profile", "--", flag, " is ", value, "; it must be from 1 to ",
               format_thousands(most), ".");
  }
}

plan::Chain profile_model(const ProfileRequest& request,
                          const nn::BigBirdConfig& config, int64_t length) {
  at::manual_seed(0);
  nn::BigBirdClassifier model(config);
  nn::BigBirdInput input;
  input.input_ids =
      at::randint(config.vocab_size, {request.batch_size, length}, at::kLong);
  const nn::BigBirdStages run = model.stages(input);
  ProfileOptions options;
  options.repetitions = static_cast<int>(request.repetitions);
  plan::Chain chain = profile_stages(run.stages, run.input_ids, options).chain;
  chain.fixed_bytes = measure_memory_parts(model.parameters()).total();
  return chain;
}

void print_table(const plan::Chain& chain) {
  std::printf("%-21s %9s %9s %9s %9s %21s\n", "stage", "forward", "backward",
              "output", "saved", "workspace, backward's");
  for (const plan::Stage& stage : chain.stages) {
    std::printf("%-21s %9s %9s %9s %9s %10s %10s\n", stage.name.c_str(),
                format_seconds(stage.forward_seconds).c_str(),
                format_seconds(stage.backward_seconds).c_str(),
                format_bytes(stage.output_bytes).c_str(),
                format_bytes(stage.saved_bytes).c_str(),
                format_bytes(stage.forward_workspace_bytes).c_str(),
                format_bytes(stage.backward_workspace_bytes).c_str());
  }
  std::printf(
      "fixed          %s: weights, gradients, optimizer, code and buffers\n",
      format_bytes(chain.fixed_bytes).c_str());
}

}  // namespace

int profile_command(const std::vector<std::string>& arguments) {
  ProfileRequest request;
  Flags flags("profile",
              "Measures what each stage of a model costs in training: time, "
              "the bytes it\nkeeps for backward and those it needs for a "
              "moment. One stage at a time, so it\ntakes little memory.");
  flags.group("What");
  flags.add("model", &request.model, "FILE|DIR",
            "config.json of a BigBird, or its folder");
  flags.add("seq-length", &request.seq_length, "TOKENS",
            "Tokens of a text (default all positions)");
  flags.add("batch-size", &request.batch_size, "N", "Texts of a batch");
  flags.add("repetitions", &request.repetitions, "N",
            "Each stage is timed at least so often");
  flags.add("output", &request.output, "FILE",
            "Write the chain, for remat plan --profile");
  add_common_flags(flags, request.common);
  flags.add_alias("max-seq-length", "seq-length");
  flags.add_alias("per-device-train-batch-size", "batch-size");
  flags.set_examples(kExamples);
  if (!flags.parse(arguments)) {
    return 0;
  }
  flags.require("model", "a BigBird's config.json, or its folder.");
  check_count("batch-size", request.batch_size, 1'000'000);
  check_count("repetitions", request.repetitions, 20);
  apply(request.common, "profile");
  const nn::BigBirdConfig config = train::read_model_config(request.model);
  const int64_t length =
      request.seq_length.value_or(config.max_position_embeddings);
  check_count("seq-length", length, config.max_position_embeddings);
  const plan::Chain chain = profile_model(request, config, length);
  if (!request.output.empty()) {
    plan::write_chain(request.output, chain);
    say("profile", "wrote the chain to " + request.output);
  }
  if (request.common.json) {
    std::printf(
        "%s\n",
        nlohmann::ordered_json::parse(plan::to_json(chain)).dump().c_str());
  } else {
    print_table(chain);
  }
  return 0;
}

}  // namespace remat::cli
