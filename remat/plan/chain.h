// What a planner knows of a model: a chain of stages with measured costs.
//
// Stage i turns the value x_i into x_{i+1}; x_0 is the input of the chain, and
// the loss takes the last value. Run with saving, a stage also leaves what its
// backward needs, its saved state. docs/plan-format.md has the file format and
// the memory rules, which are those of rotor (Beaumont et al., "Optimal
// checkpointing for heterogeneous chains", INRIA RR-9302).
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace remat::plan {

inline constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// More stages, or ways to run one, than any model has: such a file is broken.
inline constexpr int kMaxStages = 100000;
inline constexpr int kMaxWays = 64;

// A place outside the device where values wait: host memory, a disk. Moving
// takes time of the run (no overlap with computing is assumed).
struct Store {
  std::string name;
  // What it holds at once, as bytes or as a number of values (the slots of
  // Revolve); only one of the two may be limited.
  int64_t capacity_bytes = kUnlimited;
  int64_t capacity_values = kUnlimited;
  // Seconds to write and to read one value, whatever its size ...
  double write_seconds = 0;
  double read_seconds = 0;
  // ... and what each byte adds; 0: nothing.
  double write_bytes_per_second = 0;
  double read_bytes_per_second = 0;
};

// Another way to run a stage with saving: keeping part of its state, keeping it
// compressed, or moving it to a store. Times are added to the stage's own.
struct StageOption {
  std::string name;
  // Kept on the device from the forward to the backward of the stage.
  int64_t saved_bytes = 0;
  // Whether these bytes include the stage's output, from which the next stage
  // can run. If not, the output is a value of its own.
  bool holds_output = false;
  double extra_forward_seconds = 0;
  double extra_backward_seconds = 0;
  // Temporary bytes, those to compress, to restore or to move included.
  int64_t forward_workspace_bytes = 0;
  int64_t backward_workspace_bytes = 0;
  // Index into Chain::stores, and the bytes that wait there; -1: none. The time
  // to move them belongs to the extra seconds.
  int store = -1;
  int64_t stored_bytes = 0;
};

struct Stage {
  std::string name;
  double forward_seconds = 0;
  double backward_seconds = 0;
  // The output, and as many bytes again for its gradient while that lives.
  int64_t output_bytes = 0;
  // All that a forward with saving leaves for the backward: the output
  // included, the input not.
  int64_t saved_bytes = 0;
  // Temporary bytes beyond input, output, saved state and gradients.
  int64_t forward_workspace_bytes = 0;
  int64_t backward_workspace_bytes = 0;
  std::vector<StageOption> options;
};

struct Loss {
  double seconds = 0;
  int64_t workspace_bytes = 0;
};

struct Chain {
  std::vector<Stage> stages;
  int64_t input_bytes = 0;
  Loss loss;
  // What is there whatever the plan: weights, gradients, optimizer state.
  int64_t fixed_bytes = 0;
  // Whether somebody else holds the input, so that its memory is never free.
  // Otherwise it may wait in a store.
  bool holds_input = true;
  std::vector<Store> stores;

  int length() const { return static_cast<int>(stages.size()); }
  // Bytes of x_i, 0 <= i <= length().
  int64_t value_bytes(int i) const {
    return i == 0 ? input_bytes : stages[i - 1].output_bytes;
  }
};

// Throws UsageError that names the stage, the field, the value and what would
// be right: no stages, negative, NaN or infinite numbers, saved state smaller
// than the output it includes, sums beyond 2^60 bytes, unknown stores.
void validate(const Chain& chain);

// Time of one pass with nothing recomputed, and its forward alone.
double least_seconds(const Chain& chain);
double forward_seconds(const Chain& chain);

// Seconds to move a value of so many bytes.
double write_seconds(const Store& store, int64_t bytes);
double read_seconds(const Store& store, int64_t bytes);

// The JSON form. from_json throws UsageError naming source and field for broken
// JSON, unknown or missing fields, a newer version, and what validate() finds.
std::string to_json(const Chain& chain);
Chain chain_from_json(std::string_view text, std::string_view source = "chain");
Chain read_chain(const std::filesystem::path& path);
void write_chain(const std::filesystem::path& path, const Chain& chain);

}  // namespace remat::plan
