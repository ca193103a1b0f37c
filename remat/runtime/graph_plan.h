// Which values of a recorded graph to hold so that the rest can be computed
// again in the least memory.
#pragma once

#include <cstdint>
#include <optional>
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

  // How many pieces are computed again, one at a time. What follows the last
  // cut, which backward needs first, is held as a whole.
  int64_t segments = 0;
  int64_t held_bytes = 0;             // at the cuts
  int64_t largest_segment_bytes = 0;  // saved values of one piece
  // Held in any plan: random masks, memory that was made and then filled.
  int64_t fixed_bytes = 0;
  // At the worst moment, of all these values; gradients and what an operator
  // needs while it runs come on top.
  int64_t peak_bytes = 0;
  int64_t plain_bytes = 0;  // what the plain run holds of these values
  // With a budget: peak_bytes is within it. If not, this is the plan that takes
  // the least.
  bool fits = true;

  // All of that in a line, for people.
  std::string describe() const;
};

namespace detail {

class OperatorTape;

// Cuts the recorded forward where little is alive. Without a budget the cuts,
// and the larger of the largest segment and of what follows the last cut, are
// the least together: for a chain of n equal steps about sqrt(n) each. With
// one, as much as fits is held as a whole at the end. A value that lives across
// several cuts, as in a skip connection, is held and counted once.
// saved: indices of the tape's values that autograd saved.
GraphPlan plan_of_tape(const OperatorTape& tape,
                       const std::vector<size_t>& saved,
                       std::vector<std::string> operators,
                       std::optional<int64_t> budget_bytes);

}  // namespace detail
}  // namespace remat
