// A chain in the indices of the recurrences (docs/planner.md).
//
// Stage length() is the loss. Only what decides is left of a stage: its values'
// sizes, the prefix sums of forward times, and the ways in which its saved
// state can be kept.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "remat/plan/chain.h"

namespace remat::plan {

// One way to keep the saved state of stage j - 1 at the boundary x_j.
struct Keep {
  // As in Action::way.
  int16_t way = 0;
  // Which backward follows; 1 and up, as in Problem::backward_bytes.
  int16_t variant = 1;
  bool holds_output = true;
  // Bytes while the stages after the boundary work, and once they are done: a
  // state without the output needs x_j beside it until then.
  int64_t right_bytes = 0;
  int64_t left_bytes = 0;
  int64_t workspace_bytes = 0;
  double extra_seconds = 0;
};

struct Problem {
  explicit Problem(const Chain& chain);

  int length = 0;
  // x_0 .. x_length, then 0 for what the loss leaves.
  std::vector<int64_t> value;
  // prefix[j]: forward seconds of stages 0 .. j - 1.
  std::vector<double> prefix;
  std::vector<int64_t> forward_workspace;
  // keeps[j]: of stage j - 1; the stage as it is comes first.
  std::vector<std::vector<Keep>> keeps;
  // backward_bytes[i][v], v >= 1: what backward of stage i needs beside its
  // saved state and x_i, in variant v: gradients and workspace. Ways with equal
  // workspaces share a variant. For the loss: [1] alone.
  std::vector<std::vector<int64_t>> backward_bytes;
  // Ids that are equal where stages are.
  std::vector<int> kind;
  // Always there: fixed bytes and, if held, the input.
  int64_t base_bytes = 0;

  // 1 and the backward variants of stage t: how many tables end with t.
  // Variant 0 is "its saved state is not there yet".
  int variants(int t) const {
    return t == length ? 1 : static_cast<int>(backward_bytes[t].size());
  }
};

// A stage alone, forward to backward: what is needed for keep k of boundary
// s + 1, x_s excluded.
int64_t alone_bytes(const Problem& problem, int s, const Keep& keep);
int64_t loss_bytes(const Problem& problem);

// Least memory of stages s .. j - 1 run forward from x_s (not counted, and
// kept), gradients not counted. Advance one stage at a time.
class ForwardSteps {
 public:
  ForwardSteps(const Problem& problem, int s) : problem_(&problem), s_(s) {}

  // For the boundary j = s + 1, s + 2, ...: the stages before j - 1 run
  // without saving, and j - 1 as the keep says ...
  int64_t saving(int j, const Keep& keep) const {
    return std::max(most_, input(j) + keep.right_bytes + keep.workspace_bytes);
  }
  // ... or without saving as well, which also moves on to j + 1.
  int64_t advance(int j) {
    most_ = std::max(most_, input(j) + problem_->value[j] +
                                problem_->forward_workspace[j - 1]);
    return most_;
  }

 private:
  int64_t input(int j) const { return j - 1 > s_ ? problem_->value[j - 1] : 0; }

  const Problem* problem_;
  int s_;
  int64_t most_ = 0;
};

}  // namespace remat::plan
