// Flags that every command has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "remat/cli/flags.h"
#include "remat/data/batches.h"
#include "remat/nn/bigbird_config.h"

namespace remat::cli {

struct CommonOptions {
  std::optional<int64_t> threads;  // default: all cores
  std::string allocator = "caching";
  bool json = false;
  bool quiet = false;
  bool verbose = false;
};

// Adds them as a group of its own.
void add_common_flags(Flags& flags, CommonOptions& options);

// Sets log level, allocator and threads of the process, before anything large
// is in memory; options.threads has a value afterwards. Throws UsageError
// naming the flag.
void apply(CommonOptions& options, const std::string& command);

// The longest sequence, in tokens: the flag's value, or, where it was not
// given, what the run.toml in the model's folder says, or what the model can.
// Throws UsageError for a value that the model cannot take.
int64_t resolve_max_length(const std::string& command,
                           std::optional<int64_t> flag,
                           const nn::BigBirdConfig& config,
                           const std::string& folder);

// Says how many texts were cut, if any.
void say_truncated(const data::Dataset& dataset, const std::string& source,
                   int64_t max_length);

// Throws UsageError unless the batch size is at least 1 and not absurd.
void check_batch_size(const std::string& command, int64_t batch_size);

}  // namespace remat::cli
