// Equal stages, slots on the device, and a store that costs time: H-Revolve.
#pragma once

#include <cstdint>
#include <vector>

#include "remat/plan/schedule.h"

namespace remat::plan {

struct TwoLevels {
  int stages = 0;
  // Values kept at once on the device, the input counted while it is there; 0
  // where the input is not held: values wait in the store alone.
  int slots = 0;
  // Values that the store holds at once; kUnlimited: any number.
  int64_t store_slots = 0;
  // Whether the input of the chain always has a slot on the device. If not, it
  // may wait in the store.
  bool holds_input = true;
  // Seconds of the forward of one stage, and to write and read one value.
  double forward = 0;
  double write = 0;
  double read = 0;
};

// The dynamic program of Herrmann & Pallez, "H-Revolve: a framework for adjoint
// computation on synchronous hierarchical platforms" (2020), for two levels
// (docs/planner.md). The square of the stages times store_slots steps, without
// the slots where they are unlimited: no more of them are used than
// max_operations allows, and at least one.
class TwoLevelSlots {
 public:
  TwoLevelSlots(const TwoLevels& levels, double max_operations);

  // Of forwards without saving and of moves; infinity without enough slots.
  double extra_seconds() const;
  // Fewer slots of the store than there are were looked at.
  bool limited() const { return limited_; }
  // With moves to and from the store of this index. extra_seconds() must be
  // finite.
  Schedule schedule(int store) const;

 private:
  friend class TwoLevelReader;

  int fewer(int row) const { return unlimited_ ? row : row - 1; }
  // Stages that run from a value on the device, nothing in the store.
  double revolve(int length, int slots) const;
  // The best first split of a value in the store, or of the held input, for so
  // many stages; 0: none, all is done from the device.
  int split_placed(int length, int row) const;
  int split_held(int length) const;
  double through(int length, int row, int j) const;
  double through_held(int length, int j) const;

  TwoLevels levels_;
  bool unlimited_ = false;
  bool limited_ = false;
  // Rows: free slots of the store; or one alone where they are unlimited. Per
  // number of stages: from a value on the device that no slot holds, and from
  // one that is in the store (its slot counted).
  std::vector<std::vector<double>> entered_;
  std::vector<std::vector<double>> placed_;
  std::vector<double> held_;
};

}  // namespace remat::plan
