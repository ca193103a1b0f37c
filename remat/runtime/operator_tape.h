// The ATen operators of a function's forward, with what each reads and writes:
// enough to compute any of its values again, without the function.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "remat/runtime/operator_scope.h"
#include "remat/runtime/policy.h"
#include "remat/runtime/tensor_layout.h"

namespace remat::detail {

// The contents of one piece of memory at one time: what changes the memory in
// place makes a new value of it. Views are no values, only layouts.
using ValueId = size_t;

struct TapedTensor {
  // Its place in the call: an argument, or an element of one that is a list.
  size_t argument = 0;
  std::optional<size_t> element;
  ValueId value = 0;
  TensorLayout layout;
  // Of the argument's shape, for an operator to write to: nobody reads it.
  bool scratch = false;
};

// A call that gives the same each time.
struct TapedOperator {
  size_t number = 0;  // among all operators of the forward
  c10::OperatorHandle op;
  torch::jit::Stack arguments;  // without `tensors`
  std::vector<TapedTensor> tensors;
  // The values that it makes: of the n-th tensor that it returns, ...
  std::vector<std::pair<size_t, ValueId>> outputs;
  // ... or of the n-th of `tensors`, whose memory it changes.
  std::vector<std::pair<size_t, ValueId>> writes;
};

struct TapedValue {
  static constexpr size_t kNoProducer = ~size_t{0};

  // Index in operators(); kNoProducer: from outside, or of an operator that is
  // not on the tape (random, a factory, unknown memory).
  size_t producer = kNoProducer;
  int64_t bytes = 0;
  bool read = false;         // by an operator on the tape
  bool overwritten = false;  // its memory holds a later value
  bool made_here = false;    // no producer, but from the function
  // Its whole memory, where it is held: chosen, or without a producer.
  at::Tensor memory;

  bool can_be_computed() const { return producer != kNoProducer; }
};

// The defined tensors that the results of an operator hold, also in lists.
std::vector<at::Tensor> returned_tensors(const c10::OperatorHandle& op,
                                         const torch::jit::Stack& stack);

class OperatorTape final : public OperatorInterceptor {
 public:
  struct Choice {
    // Called with each operator before it runs; empty: nothing.
    std::function<void(size_t number, const c10::OperatorHandle& op)> check;
    // Whether the outputs of this call, the number-th, are held; empty: none.
    std::function<bool(size_t number, const c10::OperatorHandle& op,
                       const OperatorCall& call)>
        keeps;
    // Values that are held if remat::keep() gives them one of these names.
    std::vector<std::string> names;
    // False: only the graph is noted, and no memory kept alive.
    bool hold = true;
  };
  explicit OperatorTape(Choice choice) : choice_(std::move(choice)) {}

  bool replace(const c10::OperatorHandle& op,
               torch::jit::Stack& stack) override;
  void ran(const c10::OperatorHandle& op,
           const torch::jit::Stack& stack) override;
  void named(std::string_view name, const at::Tensor& tensor) override;
  // Nobody runs the function again: what is in regions inside counts too.
  OperatorInterceptor* of_all_operators() override { return this; }

  // Strided, with memory that a layout describes and changes that are counted.
  static bool can_hold(const at::Tensor& tensor);

  // What the tensor, of that kind, holds now; in forward.
  ValueId value_of(const at::Tensor& tensor);

  // Lets go of an operator that threw: its tensors may own the tape.
  void drop_running() { running_ = {}; }

  // Lets go of memory that somebody changed unseen.
  void drop_changed();

  // The same, and lets go of what only the forward needs.
  void forward_ended();
  // The operator will not be run again.
  void forget(size_t index);

  // Whether values are held, or the graph alone is noted.
  bool holds() const { return choice_.hold; }
  // How many operators ran, also those that are not on the tape.
  size_t operators_run() const { return operators_run_; }

  const std::vector<TapedOperator>& operators() const { return operators_; }
  std::vector<TapedValue>& values() { return values_; }
  const std::vector<TapedValue>& values() const { return values_; }

 private:
  // Memory that the tape knows.
  struct Memory {
    ValueId value;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    // Outside of this range somebody changed it unseen.
    c10::VariableVersion version;
    uint32_t least_version, most_version;
  };

  // Memory that operators outside of the tape have made or changed.
  struct Origin {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    bool made_here;
  };

  // The operator that runs now, between replace() and ran().
  struct Running {
    struct Argument {
      at::Tensor tensor;
      const c10::StorageImpl* storage;  // before: set_() changes it
      size_t argument;
      std::optional<size_t> element;
      bool writes;
      bool scratch;  // written to as well, but nobody reads it
    };
    size_t number = 0;
    torch::jit::Stack arguments;
    std::vector<Argument> tensors;
    std::optional<TapedOperator> taped;
  };

  void find_tensors(const c10::OperatorHandle& op);
  void take_arguments(const c10::OperatorHandle& op);
  std::optional<ValueId> known_value(const at::Tensor& tensor);
  void before_write(ValueId id);
  void take_writes(Running& running,
                   std::vector<std::pair<ValueId, at::Tensor>>& made);
  void note_origins(const Running& running,
                    const std::vector<at::Tensor>& outputs);
  void note_changed_outside(const Running::Argument& argument);
  bool is_outside_state(const at::Tensor& tensor) const;
  void take_outputs(Running& running, const std::vector<at::Tensor>& outputs,
                    std::vector<std::pair<ValueId, at::Tensor>>& made);
  ValueId add_value(const at::Tensor& tensor, size_t producer);
  void keep(ValueId id, const at::Tensor& tensor);

  const Choice choice_;
  std::vector<TapedOperator> operators_;
  std::vector<TapedValue> values_;
  std::unordered_map<const c10::StorageImpl*, Memory> memory_;
  std::unordered_map<const c10::StorageImpl*, Origin> origins_;
  size_t operators_run_ = 0;
  Running running_;
};

}  // namespace remat::detail
