// What a schedule costs: the judge of every plan.
//
// Written from the memory rules alone (docs/plan-format.md) and from no solver,
// so that a mistake of a solver cannot hide in it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "remat/plan/chain.h"
#include "remat/plan/schedule.h"

namespace remat::plan {

// What bytes on the device are for.
enum class Use : uint8_t {
  kFixed,      // Chain::fixed_bytes
  kValues,     // x_i, the input included
  kSaved,      // saved states
  kGradient,   // the gradient of one x_i, while a backward runs of two
  kWorkspace,  // temporary memory of the action
};

inline constexpr int kUses = 5;
std::string_view name_of(Use use);

// The device while one action runs, at its worst.
struct Moment {
  double start_seconds = 0;
  double end_seconds = 0;
  std::array<int64_t, kUses> bytes = {};
  int64_t total_bytes = 0;
};

struct StoreUse {
  int64_t peak_bytes = 0;
  int64_t peak_values = 0;
  int64_t writes = 0;
  int64_t reads = 0;
};

struct Run {
  // The most that is on the device at once, and the action at which.
  int64_t peak_bytes = 0;
  int peak_action = 0;
  double seconds = 0;
  // Parts of `seconds`: forwards beyond the first of each stage, what options
  // add, and moves between device and stores.
  double recompute_seconds = 0;
  double option_seconds = 0;
  double transfer_seconds = 0;
  // How often each stage ran again.
  std::vector<int> recomputed;
  std::vector<StoreUse> stores;
  // One entry an action, if asked for.
  std::vector<Moment> timeline;
};

// Runs the schedule on paper. The chain must be valid. Throws Error naming the
// step if an action needs a value that is not there, leaves one that is there
// already, overfills a store, or if the schedule is for another chain or ends
// before the backward of stage 0.
Run simulate(const Chain& chain, const Schedule& schedule,
             bool with_timeline = true);

}  // namespace remat::plan
