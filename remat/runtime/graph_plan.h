// Which values of a recorded graph to hold so that the rest can be computed
// again in the least memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace remat {

// Made by plan_graph() (checkpoint_graph.h), for one function and kind of
// input; a plain value, to be used for any number of steps.
struct GraphPlan {
  // The operators of the forward below autograd, in order, and whether the
  // result of each is held.
  std::vector<std::string> operators;
  std::vector<bool> held;

  // How many pieces are computed again, one at a time; the last piece, whose
  // values backward needs first, is held as a whole and not counted.
  int64_t segments = 0;
  int64_t held_bytes = 0;             // at the cuts
  int64_t largest_segment_bytes = 0;  // saved values of one piece
  int64_t plain_bytes = 0;  // what the plain run holds of these values

  // "5 segments: 1.2 MiB held at the cuts, 0.9 MiB in a segment; 12 MiB plain"
  std::string describe() const;
};

namespace detail {

class OperatorTape;

// Cuts the recorded forward where little is alive, at places such that what is
// alive at the cuts and the saved values of the largest segment are the least
// together: for a chain of n equal steps about sqrt(n) segments. A value that
// lives across several cuts, as in a skip connection, is held and counted once.
// saved: indices of the tape's values that autograd saved.
GraphPlan plan_of_tape(const OperatorTape& tape,
                       const std::vector<size_t>& saved,
                       std::vector<std::string> operators);

}  // namespace detail
}  // namespace remat
