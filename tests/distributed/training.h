// A few steps of training on all ranks, with regions and without, and what must
// be equal about them.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "remat/distributed/data_parallel.h"
#include "remat/runtime/checkpoint.h"

namespace remat::distributed {

using Weights = std::vector<at::Tensor>;

// To the last bit: at::equal takes 0.0 for -0.0. Undefined equals undefined.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

// Whether every rank's tensors are rank 0's, to the last bit. Collective.
bool same_on_all_ranks(ProcessGroup& group, const Weights& tensors);

Weights gradients_of(const Weights& weights);

// Counts, per parameter, what c10d's reducer is called by: its accumulator's
// post hooks.
class GradientCounter {
 public:
  explicit GradientCounter(const Weights& parameters);
  // Since the last call.
  std::vector<int> take();

 private:
  std::vector<std::shared_ptr<int>> counts_;
  std::vector<std::shared_ptr<void>> accumulators_;
};

// One program, run by each rank in each step.
struct Program {
  // What the model is made of; the same on all ranks.
  std::vector<std::vector<int64_t>> shapes;

  struct Call {
    const Weights& weights;
    bool regions;
    int step;
    int rank;
    // Around the part that is a DataParallel's forward in PyTorch, where a
    // program calls them itself; see own_prepare.
    std::function<void()> prepare_for_forward;
    std::function<void(const Weights&)> prepare_for_backward;

    // fn(x), as a region or plainly.
    template <class Fn>
    at::Tensor region(Fn fn, const at::Tensor& x) const {
      return regions ? checkpoint(fn, x) : fn(x);
    }
  };
  // Returns the loss.
  std::function<at::Tensor(const Call&)> loss;

  // The program calls prepare_for_... itself.
  bool own_prepare = false;
  // Every parameter's gradient arrives once in each step.
  bool uses_all = true;
  int steps = 4;
};

Program::Call plain_call(const Weights& weights, int step, int rank);

// Trains plainly and with regions, from the same weights. Fails the test unless
// in each step all gradients are the same bits in both runs and on all ranks,
// are near the mean of what each rank alone has, and arrive once.
void expect_regions_change_nothing(ProcessGroup& group, const Program& program,
                                   const DataParallelOptions& options);

// The same under each of these options: as they are, with buckets of one
// parameter each, and with unused parameters looked for; statics too if asked.
enum class Statics { kNo, kToo, kOnly };
void expect_regions_change_nothing(ProcessGroup& group, const Program& program,
                                   Statics statics,
                                   bool find_unused_parameters = false);

// Rank-dependent input, the same in both runs.
at::Tensor input_of(int rank, int step, at::IntArrayRef sizes);

// x @ w^T, then tanh.
at::Tensor layer(const at::Tensor& w, const at::Tensor& x);

}  // namespace remat::distributed
