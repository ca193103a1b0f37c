// A schedule as nested regions: what a runtime executes that recomputes by
// running functions again.
#pragma once

#include <vector>

#include "remat/plan/schedule.h"

namespace remat::plan {

// One step of a forward pass, over the stages [begin, end).
struct RegionStep {
  enum class Kind {
    // One stage runs with saving, in way `way`.
    kSave,
    // The stages run without saving. When backward reaches them they run again
    // from x_begin, which is kept for it, by the steps in `inside`.
    kRegion,
    // The same for [begin, end - 1), after which stage end - 1 runs with
    // saving, in way `way`; its input is not kept but computed again by
    // `inside` just before its backward.
    kRegionThenSave,
  };
  Kind kind = Kind::kSave;
  int begin = 0;
  int end = 0;
  int way = 0;
  // Where x_begin waits for the region's recomputation, or for the backward of
  // the saved stage: index into Chain::stores; -1: on the device.
  int store = -1;
  std::vector<RegionStep> inside = {};

  bool operator==(const RegionStep&) const = default;
};

// The steps of the forward pass over all stages.
struct RegionPlan {
  int stages = 0;
  std::vector<RegionStep> steps;

  bool operator==(const RegionPlan&) const = default;
};

// Throws UsageError that names the action where the schedule is none of nested
// regions; every schedule of solve() is.
RegionPlan region_plan(const Schedule& schedule);

// How often the forward of each stage runs in a pass, 1 in a plain one.
std::vector<int> forwards_of(const RegionPlan& plan);

}  // namespace remat::plan
