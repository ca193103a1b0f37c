// Turns the stages of a model and a sample input into a chain for the planner:
// what each costs in time and memory, measured.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "remat/plan/chain.h"
#include "remat/runtime/plan_executor.h"

namespace remat {

struct ProfileOptions {
  // All stages in turn are timed at least `repetitions` times, more until they
  // have taken `seconds_per_stage` each, and at most 20 times. Before that each
  // runs twice, to warm up and to measure memory.
  int repetitions = 3;
  double seconds_per_stage = 0.1;
  // Whether parameters have gradients before a backward, which adds to them, or
  // get them from it, as where they are dropped after each step.
  bool gradients_exist = true;
};

struct Profile {
  plan::Chain chain;
  // Of each stage: bytes of the gradients of all leaves but its input.
  std::vector<int64_t> gradient_bytes;
  // Of what stages pass on unchanged (ListStage), and its gradient: the most at
  // once. It is in none of the chain's; count it as fixed.
  int64_t shared_bytes = 0;
};

// Runs one stage after the other, forward and backward, each alone and on the
// detached output of the one before: no more memory is taken than the hungriest
// stage needs, and its input. Times are medians, with the threads in use now;
// over stages that follow each other with the same bytes and, within a quarter,
// the same time.
//
// Bytes are counted through c10's memory reporting (MemoryMeter), on the CPU:
//   output    the storage of the output, if it is new
//   saved     what is alive after a forward that was not before: each storage
//             once, parameters and other tensors from outside not at all
//   workspace what is alive beyond input, output, saved state and the gradients
//             of input and output at the worst moment of forward or backward
// Gradients of parameters are in none of them: the caller counts them, all (as
// Chain::fixed_bytes) or as the stages' backwards come. What is added to
// gradients that exist is workspace.
//
// Leaves no trace: gradients of leaves, buffers of the stages and the state of
// ATen's random generators are afterwards what they were. stages: as for
// run_plan(); a stage that reads tensors of another graph gets their gradients
// counted as its own work. x: the input of the first stage, of any type; the
// chain's input needs a gradient if x does. A stage without a name is "stage 0"
// and so on. Throws UsageError without stages and with gradients off.
Profile profile_stages(const std::vector<PlanStage>& stages,
                       const at::Tensor& x, const ProfileOptions& options = {});
Profile profile_stages(const std::vector<ListStage>& stages,
                       const std::vector<at::Tensor>& x,
                       const ProfileOptions& options = {});

// Runs each stage once, as a profile does and without a trace: what libraries
// keep for themselves from their first use on is there afterwards.
void warm_up_stages(const std::vector<PlanStage>& stages, const at::Tensor& x);
void warm_up_stages(const std::vector<ListStage>& stages,
                    const std::vector<at::Tensor>& x);

}  // namespace remat
