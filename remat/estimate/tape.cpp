#include "remat/estimate/tape.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace remat::estimate {
namespace {

// Bytes in use, and the most there ever were.
class Gauge {
 public:
  void take(int64_t bytes) {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  void give(int64_t bytes) { now_ -= bytes; }

  int64_t now() const { return now_; }
  int64_t peak() const { return peak_; }

 private:
  int64_t now_ = 0;
  int64_t peak_ = 0;
};

double longer(double flops, double moved, const Tape::Rates& rates) {
  return std::max(flops / rates.flops_per_second,
                  moved / rates.bytes_per_second);
}

}  // namespace

Tape::Tape(int64_t input_bytes) : input_bytes_(input_bytes) {}

Tape::Value Tape::add(Operator op) {
  for (Value& value : op.saves) {
    if (value == kOutput) {
      value = output_of(nodes_.size());
    }
  }
  nodes_.push_back({std::move(op), statement_});
  return output_of(nodes_.size() - 1);
}

void Tape::hold(const std::vector<Value>& values) {
  for (const Value value : values) {
    holds_.push_back({value, statement_});
  }
}

int64_t Tape::bytes_of(Value value) const {
  return value == input() ? input_bytes_ : nodes_[value - 1].op.output_bytes;
}

Tape::Memory Tape::memory() const {
  const size_t count = nodes_.size();
  const Value last = output_of(count - 1);
  std::vector<int> holders(count + 1, 0);
  std::vector<int> last_statement(count + 1, -1);
  // The stage's output is held to the end, and the input by somebody else.
  ++holders[last];
  ++holders[input()];
  for (size_t i = 0; i < count; ++i) {
    const Node& node = nodes_[i];
    for (const Value value : node.op.saves) {
      ++holders[value];
    }
    for (const Value value : node.op.inputs) {
      last_statement[value] = node.statement;
    }
    last_statement[output_of(i)] =
        std::max(last_statement[output_of(i)], node.statement);
  }
  for (const Hold& hold : holds_) {
    last_statement[hold.value] =
        std::max(last_statement[hold.value], hold.statement);
  }

  Gauge gauge;
  size_t released = 0;  // nodes before this one have been looked at
  std::vector<bool> is_free(count + 1, false);
  for (size_t i = 0; i < count; ++i) {
    const Node& node = nodes_[i];
    gauge.take(node.op.output_bytes + node.op.saved_beside_bytes +
               node.op.forward_scratch_bytes);
    gauge.give(node.op.forward_scratch_bytes);
    if (i + 1 < count && nodes_[i + 1].statement == node.statement) {
      continue;
    }
    for (size_t j = released; j <= i; ++j) {
      const Value value = output_of(j);
      if (!is_free[value] && holders[value] == 0 &&
          last_statement[value] <= node.statement) {
        is_free[value] = true;
        gauge.give(bytes_of(value));
      }
    }
    while (released <= i && is_free[output_of(released)]) {
      ++released;
    }
  }
  Memory memory;
  memory.saved_bytes = gauge.now();
  memory.forward_workspace_bytes = gauge.peak() - gauge.now();

  // A gradient, possibly of several values at once.
  struct Gradient {
    Gradient(Gauge& gauge, int64_t bytes) : gauge(gauge), bytes(bytes) {
      gauge.take(bytes);
    }
    Gradient(const Gradient&) = delete;
    Gradient& operator=(const Gradient&) = delete;
    ~Gradient() { gauge.give(bytes); }
    Gauge& gauge;
    int64_t bytes;
  };
  Gauge backward;
  backward.take(memory.saved_bytes);
  {
    std::vector<std::shared_ptr<Gradient>> gradients(count + 1);
    gradients[last] = std::make_shared<Gradient>(backward, bytes_of(last));
    for (size_t i = count; i-- > 0;) {
      const Operator& op = nodes_[i].op;
      std::shared_ptr<Gradient> gradient = std::move(gradients[output_of(i)]);
      backward.take(op.backward_scratch_bytes);
      for (const Value value : op.inputs) {
        auto made = op.passes_gradient
                        ? gradient
                        : std::make_shared<Gradient>(backward, bytes_of(value));
        // A second one is added to the first in place.
        if (gradients[value] == nullptr) {
          gradients[value] = std::move(made);
        }
      }
      backward.give(op.backward_scratch_bytes + op.saved_beside_bytes);
      for (const Value value : op.saves) {
        if (--holders[value] == 0) {
          backward.give(bytes_of(value));
        }
      }
    }
  }
  memory.backward_workspace_bytes = std::max<int64_t>(
      0, backward.peak() - memory.saved_bytes - bytes_of(last) - input_bytes_);
  return memory;
}

double Tape::forward_seconds(const Rates& rates) const {
  double seconds = 0;
  for (const Node& node : nodes_) {
    seconds += longer(node.op.flops, node.op.moved_bytes, rates);
  }
  return seconds;
}

double Tape::backward_seconds(const Rates& rates) const {
  double seconds = 0;
  for (const Node& node : nodes_) {
    seconds +=
        longer(node.op.backward_flops, node.op.backward_moved_bytes, rates);
  }
  return seconds;
}

}  // namespace remat::estimate
