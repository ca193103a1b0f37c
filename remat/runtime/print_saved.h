// What autograd keeps of a function's forward: by whom, how many bytes, and
// what it is.
//
//   remat::print_saved([&](const at::Tensor& x) { return block->forward(x); },
//   x);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/runtime/visit_tensors.h"

namespace remat {

enum class SavedKind {
  kInput,      // memory of an argument of the function
  kParameter,  // a leaf that requires grad
  kComputed,   // computed in the function: what recomputing saves
};

struct SavedTensor {
  // The operator that saved it, such as "aten::mm"; empty: the input of a
  // region.
  std::string saved_by;
  SavedKind kind = SavedKind::kComputed;
  std::string dtype;
  std::vector<int64_t> sizes;
  // Of its whole memory; 0 where an earlier entry of the list has it already.
  int64_t bytes = 0;
};

namespace detail {

// Records what autograd saves in this thread while it lives.
class SavedTensorRecorder {
 public:
  explicit SavedTensorRecorder(const std::vector<at::Tensor>& inputs);
  ~SavedTensorRecorder();
  SavedTensorRecorder(const SavedTensorRecorder&) = delete;
  SavedTensorRecorder& operator=(const SavedTensorRecorder&) = delete;

  std::vector<SavedTensor> take();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace detail

// Runs fn(inputs...) once, with gradients on, and lists what autograd saves in
// it, in order. Regions in it save their inputs only. What hooks inside fn take
// is not seen, nor what other threads save.
template <class Fn, class... Inputs>
std::vector<SavedTensor> saved_tensors(Fn&& fn, Inputs&&... inputs) {
  std::tuple<std::decay_t<Inputs>...> arguments(
      std::forward<Inputs>(inputs)...);
  std::vector<at::Tensor> tensors;
  for_each_tensor(arguments,
                  [&](at::Tensor& tensor) { tensors.push_back(tensor); });
  detail::SavedTensorRecorder recorder(tensors);
  // Kept until the list is taken: memory that is freed could come again.
  [[maybe_unused]] const auto result = std::apply(fn, arguments);
  return recorder.take();
}

// The list as a table, with its sums.
void print_saved_table(std::ostream& out,
                       const std::vector<SavedTensor>& saved);
// To standard output.
void print_saved_table(const std::vector<SavedTensor>& saved);

// Runs fn(inputs...) as saved_tensors() and prints the table.
template <class Fn, class... Inputs>
void print_saved(Fn&& fn, Inputs&&... inputs) {
  print_saved_table(
      saved_tensors(std::forward<Fn>(fn), std::forward<Inputs>(inputs)...));
}

}  // namespace remat
