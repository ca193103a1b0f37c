// What an operator's schema tells: whether running it again gives the same.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace remat::detail {

// Makes new memory, for somebody to fill: a kernel that is no operator may
// write to it unseen, and it costs nothing to make again. Not computed from
// tensors, or only shaped like one.
bool is_factory(const c10::OperatorHandle& op);

// Draws random numbers.
bool is_random(const c10::OperatorHandle& op);

// Every output is a tensor with memory of its own: no views, nothing in place,
// and the same each time that it is run.
bool computes_new_tensors(const c10::OperatorHandle& op);

// The same memory and version counter, without the graph that autograd has
// attached to the tensor or is about to.
at::Tensor without_graph(const at::Tensor& tensor);

}  // namespace remat::detail
