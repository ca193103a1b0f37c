// One stage as the operators that autograd sees, run on paper: what it keeps
// for its backward, what it needs meanwhile, and how long it takes.
//
// For the sources of remat/estimate and their tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace remat::estimate {

class Tape {
 public:
  // A tensor. Views are not told from what they view.
  using Value = int;
  // In Operator::saves: the operator's own output.
  static constexpr Value kOutput = -1;

  struct Operator {
    std::string name;
    // Of which the backward computes the gradient.
    std::vector<Value> inputs;
    int64_t output_bytes = 0;
    // What autograd keeps, and bytes that nobody else has: statistics, masks.
    std::vector<Value> saves;
    int64_t saved_beside_bytes = 0;
    // Memory that only the operator itself needs.
    int64_t forward_scratch_bytes = 0;
    int64_t backward_scratch_bytes = 0;
    // The gradients of the inputs are that of the output, not copies.
    bool passes_gradient = false;
    // Operations of matrix products, and bytes read and written.
    double flops = 0;
    double backward_flops = 0;
    double moved_bytes = 0;
    double backward_moved_bytes = 0;
  };

  // Of the stage's input, value 0. Who holds it is not this stage's affair.
  explicit Tape(int64_t input_bytes);

  Value input() const { return 0; }
  Value add(Operator op);

  // Temporary values live to the end of the last statement that uses or holds
  // them.
  void end_statement() { ++statement_; }
  void hold(const std::vector<Value>& values);

  struct Memory {
    // The output included, the input not.
    int64_t saved_bytes = 0;
    // Beyond that; beyond saved state and both gradients.
    int64_t forward_workspace_bytes = 0;
    int64_t backward_workspace_bytes = 0;
  };

  // Runs forward and backward; the last operator's output is the stage's.
  Memory memory() const;

  struct Rates {
    double flops_per_second = 0;
    double bytes_per_second = 0;
  };
  // Each operator takes the longer of computing and moving.
  double forward_seconds(const Rates& rates) const;
  double backward_seconds(const Rates& rates) const;

 private:
  struct Node {
    Operator op;
    int statement = 0;
  };
  struct Hold {
    Value value = 0;
    int statement = 0;
  };

  int64_t bytes_of(Value value) const;
  Value output_of(size_t node) const { return static_cast<Value>(node) + 1; }

  int64_t input_bytes_;
  int statement_ = 0;
  std::vector<Node> nodes_;
  std::vector<Hold> holds_;
};

}  // namespace remat::estimate
