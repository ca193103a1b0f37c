#include "remat/cli/common_flags.h"

#include <filesystem>
#include <vector>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/base/log.h"
#include "remat/base/suggest.h"
#include "remat/cli/config_file.h"
#include "remat/memory/cpu_allocator.h"
#include "remat/memory/threads.h"

namespace remat::cli {
namespace {

// [CLS], one piece, [SEP].
constexpr int64_t kShortest = 3;

std::optional<int64_t> max_length_of_run(const std::string& command,
                                         const std::string& folder) {
  const auto file = std::filesystem::path(folder) / "run.toml";
  std::error_code ignored;
  if (folder.empty() || !std::filesystem::exists(file, ignored)) {
    return std::nullopt;
  }
  for (const ConfigEntry& entry : read_config_file(command, file)) {
    if (entry.key == "max-seq-length" && entry.kind == ValueKind::kInteger) {
      return std::stoll(entry.text);
    }
  }
  return std::nullopt;
}

}  // namespace

void add_common_flags(Flags& flags, CommonOptions& options) {
  flags.group("Program");
  flags.add("threads", &options.threads, "N",
            "Threads that compute (default all cores)");
  flags.add("allocator", &options.allocator, "KIND",
            "caching uses the memory of large\ntensors again, system leaves "
            "it to libtorch\nand the C library");
  flags.add("json", &options.json, "", "Results as JSON");
  flags.add("quiet", &options.quiet, "", "Only results and errors");
  flags.add("verbose", &options.verbose, "", "Say more of what is done");
}

void apply(CommonOptions& options, const std::string& command) {
  if (options.quiet && options.verbose) {
    fail_usage(command, "--quiet and --verbose exclude each other.");
  }
  set_log_level(options.quiet     ? LogLevel::kQuiet
                : options.verbose ? LogLevel::kVerbose
                                  : LogLevel::kNormal);
  const std::vector<std::string> allocators{"caching", "system"};
  if (options.allocator == "caching") {
    install_cpu_allocator();
  } else if (options.allocator != "system") {
    fail_usage(command, "--allocator is ", options.allocator,
               "; it must be caching or system",
               did_you_mean(options.allocator, allocators));
  }
  const int64_t threads = options.threads.value_or(default_compute_threads());
  if (threads < 1 || threads > 1024) {
    fail_usage(command, "--threads is ", threads,
               "; it must be from 1 to 1024. Leave it out to use all ",
               default_compute_threads(), " cores.");
  }
  options.threads = threads;
  set_compute_threads(static_cast<int>(threads));
}

int64_t resolve_max_length(const std::string& command,
                           std::optional<int64_t> flag,
                           const nn::BigBirdConfig& config,
                           const std::string& folder) {
  const int64_t most = config.max_position_embeddings;
  if (!flag.has_value()) {
    const int64_t length = max_length_of_run(command, folder).value_or(most);
    return length < kShortest || length > most ? most : length;
  }
  if (*flag > most || *flag < kShortest) {
    fail_usage(command, "--max-seq-length is ", *flag, "; it must be from ",
               kShortest, " to ", most,
               ", the max_position_embeddings of the model.");
  }
  return *flag;
}

void say_truncated(const data::Dataset& dataset, const std::string& source,
                   int64_t max_length) {
  if (dataset.truncated > 0) {
    say("data",
        str(source, ": ", format_thousands(dataset.truncated), " of ",
            format_thousands(static_cast<int64_t>(dataset.examples.size())),
            " texts are longer than ", format_thousands(max_length),
            " tokens; only their beginning is used"));
  }
}

void check_batch_size(const std::string& command, int64_t batch_size) {
  if (batch_size < 1 || batch_size > 1'000'000'000) {
    fail_usage(command, "--per-device-eval-batch-size is ", batch_size,
               "; it must be from 1 to 1,000,000,000.");
  }
}

}  // namespace remat::cli
