// A plan as a sequence of actions, free of any model.
//
// Whoever executes one keeps values x_i (the inputs of stages; x_length goes to
// the loss), saved states of stages, and one gradient. Each action of a stage i
// reads x_i, or the saved state of stage i - 1 if that holds its output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace remat::plan {

enum class ActionKind : uint8_t {
  // Forward of stage i with saving: its state is kept, in way `way`, and x_i
  // stays. (F_all in rotor.)
  kForwardSave,
  // Forward without saving: x_{i+1} appears and x_i stays. (F_ck)
  kForwardKeep,
  // Forward without saving: x_{i+1} appears and x_i is released. (F_none)
  kForwardDrop,
  // The loss and the gradient of the last value, which is released.
  kLoss,
  // Backward of stage i: releases its saved state, x_i and the gradient of
  // x_{i+1}, and leaves the gradient of x_i.
  kBackward,
  // Copies x_i to a store, or back; the source stays.
  kStore,
  kFetch,
  // Releases x_i on the device (not what a saved state holds of it).
  kFree,
  // Releases the saved state of stage i without its backward.
  kFreeSaved,
  // Releases x_i in a store.
  kFreeStored,
};

inline constexpr int kActionKinds = 10;

struct Action {
  ActionKind kind = ActionKind::kLoss;
  // The stage, or the i of x_i; 0 for the loss.
  int32_t stage = 0;
  // kForwardSave: 0 for the stage as it is, k for Stage::options[k - 1].
  int16_t way = 0;
  // kStore, kFetch, kFreeStored: index into Chain::stores.
  int16_t store = 0;

  bool operator==(const Action&) const = default;
};

struct Schedule {
  // The length of the chain it is for.
  int stages = 0;
  std::vector<Action> actions;

  bool operator==(const Schedule&) const = default;
};

// "forward_save", as in files.
std::string_view name_of(ActionKind kind);

// One line, for people: "Fa0 Fc1 Fn2 L B1 ...". Fa2.1 is option 1 of stage 2;
// S, R, X, Xa and Xs are store, fetch and the three releases.
std::string to_text(const Schedule& schedule);

// The JSON form. from_json throws UsageError naming source, action and field.
// Whether a schedule is right for a chain is for simulate() to say.
std::string to_json(const Schedule& schedule);
Schedule schedule_from_json(std::string_view text,
                            std::string_view source = "schedule");
Schedule read_schedule(const std::filesystem::path& path);
void write_schedule(const std::filesystem::path& path,
                    const Schedule& schedule);

}  // namespace remat::plan
