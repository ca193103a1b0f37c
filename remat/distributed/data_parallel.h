// Training on several processes, each with its part of the batch and the whole
// model: the gradients of all ranks are averaged while backward runs.
//
//   DataParallel parallel(group, model->parameters(), model->buffers());
//   for (...) {
//     parallel.prepare_for_forward();
//     auto loss = ...;
//     parallel.prepare_for_backward({loss});
//     loss.backward();       // each parameter's grad: the mean over the ranks
//     optimizer.step();
//   }
//
// The reduction is libtorch's c10d::Reducer: Li, Zhao, Varma et al.: PyTorch
// Distributed (VLDB 2020). Regions of remat::checkpoint need no option of it,
// since a parameter's gradient still arrives once a backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "remat/distributed/process_group.h"

namespace remat::distributed {

struct DataParallelOptions {
  // Look through the graph of the outputs for parameters that got no part in
  // them, in each step. Needed where a step uses only part of the model on some
  // rank; costs a walk and one more reduction. Default false.
  bool find_unused_parameters = false;

  // The same parameters are used in every step, each as often: the first step
  // finds out which, later ones need no search. All gradients of the first step
  // are reduced at its end. Within one step there must be one backward pass.
  // Default false.
  bool static_graph = false;

  // Gradients are sent in pieces of about this size. Larger: fewer messages;
  // smaller: they leave earlier. Default 25 MiB.
  int64_t bucket_bytes = int64_t{25} << 20;

  // The piece that leaves first. Default 1 MiB.
  int64_t first_bucket_bytes = int64_t{1} << 20;

  // A gradient that arrives when no reduction will take it would stay this
  // rank's own, and the ranks drift apart without a word. True: it is an Error,
  // thrown by backward. False: it is accepted. Default true.
  bool refuse_unreduced = true;
};

class DataParallel {
 public:
  // Gives every rank rank 0's values of parameters and buffers. The parameters
  // that require gradients now are the ones reduced; the same model must be
  // built on each rank, parameters in the same order. Buffers are not kept
  // equal afterwards. Collective. Throws UsageError for options or parameters
  // that cannot be, Error where the models differ.
  DataParallel(ProcessGroup group, std::vector<at::Tensor> parameters,
               std::vector<at::Tensor> buffers = {},
               const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Before and after each forward whose backward is to be reduced. `outputs`:
  // what the losses are computed from, or the losses. Then one backward pass,
  // or several in which no parameter's gradient arrives twice.
  //
  // Both do nothing with gradients off, inside NoSync, and in a recomputation,
  // so they may stand in a region. Collective in the second step. Throws Error
  // where a parameter got no gradient in the step before.
  void prepare_for_forward();
  void prepare_for_backward(const std::vector<at::Tensor>& outputs);

  // The parameters that are reduced.
  const std::vector<at::Tensor>& parameters() const;

 private:
  friend class NoSync;
  struct State;
  std::shared_ptr<State> state_;
};

// While it lives, gradients add up in each rank and are not reduced; the next
// step outside reduces the sums. Forward and backward both belong inside.
class NoSync {
 public:
  explicit NoSync(DataParallel& parallel);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  std::shared_ptr<DataParallel::State> state_;
};

}  // namespace remat::distributed
