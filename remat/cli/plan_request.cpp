#include "remat/cli/plan_request.h"

#include <algorithm>
#include <filesystem>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/base/log.h"
#include "remat/base/suggest.h"
#include "remat/cli/flags.h"
#include "remat/cli/this_machine.h"
#include "remat/plan/bounds.h"

namespace remat::cli {
namespace {

constexpr const char* kThisMachine = "this-machine";
constexpr int64_t kMaxThreads = 1024;

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += str(text.empty() ? "" : ", ", name);
  }
  return text;
}

int64_t parse_memory(const std::string& text) {
  int64_t bytes = 0;
  try {
    bytes = parse_bytes(text);
  } catch (const UsageError&) {
    bytes = 0;
  }
  if (bytes < 1) {
    fail_usage("plan", "--memory is \"", text,
               "\"; it must be a size such as 900MiB, 4GiB, 4GB or plain "
               "bytes.");
  }
  return bytes;
}

estimate::Device find_device(const PlanFlags& flags) {
  const std::string& name = flags.device;
  if (name == kThisMachine) {
    return measure_this_machine(static_cast<int>(flags.threads.value_or(0)));
  }
  std::error_code ignored;
  if (name.find('/') != std::string::npos || name.ends_with(".json") ||
      std::filesystem::exists(name, ignored)) {
    return estimate::read_device(name);
  }
  std::vector<std::string> known = estimate::known_device_names();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    known.push_back(kThisMachine);
    fail_usage("plan", "--device is ", name, "; no such device is known",
               did_you_mean(name, known), " Known are ", joined(known),
               " (remat plan --list-devices); any other is described in a "
               "file.");
  }
  return estimate::find_known_device(name);
}

Estimated estimate_model(const PlanFlags& flags) {
  Estimated estimated;
  estimated.model = estimate::read_model(flags.model);
  if (!flags.head.empty()) {
    estimated.model.head = estimate::parse_head("--head", flags.head);
  }
  estimate::Workload& work = estimated.work;
  work.sequence_length = *flags.seq_length;
  work.batch_size = flags.batch_size;
  work.dtype = estimate::parse_dtype("--dtype", flags.dtype);
  work.attention = estimate::parse_attention("--attention", flags.attention);
  work.offload = estimate::parse_offload("--offload", flags.offload);
  estimated.device = find_device(flags);
  estimated.estimate =
      estimate::estimate(estimated.model, estimated.device, work, "--");
  return estimated;
}

void check_sources(const PlanFlags& flags, const Flags& given) {
  if (flags.list_devices) {
    return;
  }
  if (!flags.chain.empty() && !flags.model.empty()) {
    fail_usage("plan",
               "--chain and --model exclude each other: the chain is "
               "either measured or estimated.");
  }
  if (flags.chain.empty() && flags.model.empty()) {
    fail_usage("plan",
               "--model is missing: a Hugging Face config.json or its "
               "folder, with --seq-length and --device. Or give "
               "--chain, the file of a measured chain.");
  }
  if (flags.chain.empty()) {
    given.require("seq-length", "how many tokens a text has.");
    given.require("device",
                  "a machine by name (remat plan --list-devices), a device "
                  "file, or this-machine.");
    return;
  }
  for (const char* name : {"seq-length", "batch-size", "dtype", "bf16", "fp16",
                           "device", "head", "attention", "offload"}) {
    if (given.is_given(name)) {
      fail_usage("plan", "--", name,
                 " belongs to --model; with --chain the "
                 "costs are those of the file.");
    }
  }
  given.require("memory", "the budget of the plan, such as 4GiB.");
}

void check_numbers(const PlanFlags& flags, const Flags& given) {
  const auto at_least_one = [](const char* name,
                               const std::optional<int64_t>& value,
                               const char* remedy) {
    if (value.has_value() && (*value < 1 || *value > plan::kMaxStages)) {
      fail_usage("plan", "--", name, " is ", *value, "; it must be from 1 to ",
                 plan::kMaxStages, ", ", remedy);
    }
  };
  at_least_one("every-n-layers", flags.every_n_layers,
               "1 recomputes every stage, 2 every second one.");
  at_least_one("segments", flags.segments,
               "the number of equal parts of the chain.");
  if (flags.threads.has_value() &&
      (*flags.threads < 1 || *flags.threads > kMaxThreads)) {
    fail_usage("plan", "--threads is ", *flags.threads,
               "; it must be from 1 to ", kMaxThreads,
               ". Leave it out to use all cores.");
  }
  if (flags.quiet && flags.verbose) {
    fail_usage("plan", "--quiet and --verbose exclude each other.");
  }
  if ((flags.bf16 || flags.fp16) &&
      (flags.bf16 == flags.fp16 || given.is_given("dtype"))) {
    fail_usage("plan",
               "--dtype, --bf16 and --fp16 exclude each other; give one.");
  }
  const auto solver_only = [&](const char* name, bool is_given,
                               const char* solver) {
    if (is_given && flags.solver != solver) {
      fail_usage("plan", "--", name, " belongs to --solver ", solver,
                 "; the solver is ", flags.solver, ".");
    }
  };
  solver_only("every-n-layers", flags.every_n_layers.has_value(), "every-n");
  solver_only("segments", flags.segments.has_value(), "segments");
  // Its list of layers has no flag.
  std::vector<std::string> known = plan::solver_names();
  std::erase(known, "layers");
  if (std::find(known.begin(), known.end(), flags.solver) == known.end()) {
    fail_usage("plan", "--solver is ", flags.solver, "; it must be one of ",
               joined(known), did_you_mean(flags.solver, known));
  }
}

}  // namespace

bool parse_plan_flags(PlanFlags& o, const std::vector<std::string>& arguments) {
  Flags flags("plan",
              "Answers whether training fits into a memory: which stages of a "
              "model keep\ntheir values, which run again in backward, and what "
              "that costs.");
  flags.group("The model, measured or estimated");
  flags.add("model", &o.model, "FILE",
            "Hugging Face config.json, or its folder:\nbig_bird, bert, gpt2");
  flags.add("seq-length", &o.seq_length, "TOKENS", "Tokens of a text");
  flags.add("batch-size", &o.batch_size, "N", "Texts of a forward");
  flags.add("dtype", &o.dtype, "TYPE", "float32, bfloat16\nor float16");
  flags.add("bf16", &o.bf16, "", "The same as --dtype bfloat16");
  flags.add("fp16", &o.fp16, "", "The same as --dtype float16");
  flags.add("head", &o.head, "KIND",
            "classification, language-model or none\n(default classification, "
            "for gpt2\nlanguage-model)");
  flags.add("attention", &o.attention, "KIND",
            "fused keeps no probabilities, eager does;\nautomatic: what runs "
            "there today\n");
  flags.add("offload", &o.offload, "WHERE",
            "host or disk: saved values may wait\nthere");
  flags.add("chain", &o.chain, "FILE",
            "A chain with its costs instead of a model\n(docs/plan-format.md)");
  flags.group("The machine");
  flags.add("device", &o.device, "NAME",
            "One by name, a device file,\nor this-machine");
  flags.add("memory", &o.memory, "SIZE",
            "What the run may use at once, as 60GiB\n(default the device's)");
  flags.add("list-devices", &o.list_devices, "", "Print the known ones");
  flags.group("The plan");
  flags.add(
      "solver", &o.solver, "NAME",
      "optimal, keep-all, recompute-all,\nevery-n, segments or binomial\n");
  flags.add("every-n-layers", &o.every_n_layers, "N",
            "Of every-n: stages 0, N, 2N, ... run\nagain (default 2)");
  flags.add("segments", &o.segments, "N",
            "Of segments: how many\n(default the fastest that fits)");
  flags.add("threads", &o.threads, "N", "Threads (default all cores)");
  flags.group("The answer");
  flags.add("explain", &o.explain, "",
            "Also why: the peak by use, every solver,\nwhat no plan can beat, "
            "the schedule");
  flags.add("frontier", &o.frontier, "", "Also what other budgets would cost");
  flags.add("output", &o.output, "FILE", "Write the schedule, as JSON");
  flags.add("output-chain", &o.output_chain, "FILE",
            "Write the chain with its costs, as JSON");
  flags.add("json", &o.json, "", "The answer as JSON");
  flags.add("quiet", &o.quiet, "", "Only the answer and errors");
  flags.add("verbose", &o.verbose, "", "Say more of what is done");
  // As remat train and Hugging Face call them.
  flags.add_alias("max-seq-length", "seq-length");
  flags.add_alias("per-device-train-batch-size", "batch-size");
  flags.add_alias("profile", "chain");
  flags.set_examples(
      "Examples:\n"
      "  remat plan --model bert-base/ --seq-length 512 --batch-size 64 \\\n"
      "             --device l4\n"
      "      Does that fit on an NVIDIA L4, and what does it cost?\n"
      "  remat plan --model config.json --seq-length 131072 --bf16 \\\n"
      "             --attention fused --device h100-80g --memory 60GiB "
      "--explain\n"
      "      The fastest plan within 60 GiB of an H100, and why.\n"
      "  remat plan --chain chain.json --memory 900MiB --output plan.json\n"
      "      A plan for a chain that was measured, as a file.\n\n"
      "Reads no weights and needs no device: what is not measured is an "
      "estimate, and\nthe answer says what was assumed (docs/cost-model.md). "
      "Exit codes: 0 a plan\nfits, 2 wrong usage, 3 no plan fits; the least "
      "memory that would do is printed.");
  if (!flags.parse(arguments)) {
    return false;
  }
  check_numbers(o, flags);
  check_sources(o, flags);
  o.dtype = o.bf16 ? "bfloat16" : o.fp16 ? "float16" : o.dtype;
  return true;
}

PlanRequest make_plan_request(const PlanFlags& flags) {
  PlanRequest request;
  if (!flags.memory.empty()) {
    request.options.budget_bytes = parse_memory(flags.memory);
  }
  if (flags.chain.empty()) {
    request.estimated = estimate_model(flags);
    request.chain = request.estimated->estimate.chain;
    if (flags.memory.empty()) {
      request.options.budget_bytes = request.estimated->device.memory_bytes;
    }
  } else {
    request.chain = plan::read_chain(flags.chain);
  }
  if (flags.segments.value_or(1) > request.chain.length()) {
    fail_usage("plan", "--segments is ", *flags.segments,
               "; it must be at most the number of stages, ",
               request.chain.length(), ".");
  }
  request.options.solver = flags.solver;
  request.options.every_n = static_cast<int>(flags.every_n_layers.value_or(2));
  request.options.segments = static_cast<int>(flags.segments.value_or(0));
  request.options.threads = static_cast<int>(flags.threads.value_or(0));
  return request;
}

std::vector<SmallerRequest> smaller_requests(const PlanRequest& request) {
  std::vector<SmallerRequest> smaller;
  if (!request.estimated.has_value()) {
    return smaller;
  }
  const Estimated& now = *request.estimated;
  const auto consider = [&](const std::string& flags,
                            const estimate::Workload& work) {
    try {
      const auto made = estimate::estimate(now.model, now.device, work);
      const int64_t least = plan::least_budget(made.chain);
      if (least < plan::least_budget(request.chain)) {
        smaller.push_back({flags, least});
      }
    } catch (const UsageError&) {
      // The device or the model cannot do that.
    }
  };
  estimate::Workload work = now.work;
  if (work.attention != estimate::Attention::kFused) {
    work.attention = estimate::Attention::kFused;
    consider("--attention fused", work);
  }
  work = now.work;
  if (work.dtype == estimate::Dtype::kFloat32) {
    work.dtype = estimate::Dtype::kBFloat16;
    consider("--dtype bfloat16", work);
  }
  work = now.work;
  if (work.batch_size > 1) {
    work.batch_size = 1;
    consider("--batch-size 1", work);
  }
  work = now.work;
  if (work.sequence_length > 1) {
    work.sequence_length = (work.sequence_length + 1) / 2;
    consider(str("--seq-length ", work.sequence_length), work);
  }
  return smaller;
}

}  // namespace remat::cli
