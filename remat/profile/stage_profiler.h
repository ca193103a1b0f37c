// One stage of a profile: its bytes, counted, and samples of its times.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "remat/plan/chain.h"
#include "remat/runtime/plan_executor.h"

namespace remat {

// Of the tensors' storages, each once; undefined tensors have none.
int64_t memory_bytes(const std::vector<at::Tensor>& tensors);

// Every call takes the stage's inputs and gives those of the next, without
// their graph: leaves that require a gradient if the outputs did. Gradients of
// leaves are afterwards what they were; those of inputs are dropped.
class StageProfiler {
 public:
  // The stage must outlive this. gradients_exist: ProfileOptions's.
  StageProfiler(const ListStage& stage, bool gradients_exist);

  // Caches of the stage and of libtorch; and whose gradients it makes. First of
  // all. Throws UsageError where the stage returns no tensor.
  std::vector<at::Tensor> warm_up(const std::vector<at::Tensor>& inputs);

  std::vector<at::Tensor> measure_memory(const std::vector<at::Tensor>& inputs,
                                         plan::Stage& costs);

  // Adds one sample; returns how many seconds it took.
  double measure_time(std::vector<at::Tensor>& inputs);

  // Of the leaves besides the inputs.
  int64_t gradient_bytes() const { return gradient_bytes_; }
  // Of the inputs that are outputs too, and their gradients.
  int64_t shared_bytes() const { return shared_bytes_; }
  const std::vector<double>& forward_seconds() const {
    return forward_seconds_;
  }
  const std::vector<double>& backward_seconds() const {
    return backward_seconds_;
  }

 private:
  const ListStage& stage_;
  const bool gradients_exist_;
  std::vector<at::Tensor> leaves_;
  int64_t gradient_bytes_ = 0;
  int64_t shared_bytes_ = 0;
  std::vector<double> forward_seconds_, backward_seconds_;
};

}  // namespace remat
