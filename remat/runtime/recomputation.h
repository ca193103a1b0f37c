// One run of a region's forward in backward: takes what autograd saves, in
// order, compares it with the forward and stops at the last value needed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "remat/runtime/region.h"

namespace remat::detail {

// Thrown through the region's function to stop it. No std::exception, so that
// no ordinary handler of the user's catches it.
struct StopRecomputation {
  const void* recomputation;
};

class Recomputation final : public SavedTensorHandler,
                            public std::enable_shared_from_this<Recomputation> {
 public:
  Recomputation(Region& region, Region::Values& values);

  // Runs the function under the forward's state. Throws CheckpointError with
  // every difference from the forward, and what the function throws.
  void run(std::vector<at::Tensor> inputs);

  std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() override;

  // The next saved tensor; throws StopRecomputation after the last one needed.
  void receive(const at::Tensor& tensor);

 private:
  void compare(const Region::Slot& slot, const at::Tensor& tensor,
               size_t index);
  void run_function(std::vector<at::Tensor> inputs);
  void check_count() const;
  void check_differences() const;
  // Throws CheckpointError that says where the two runs part, if that is noted.
  [[noreturn]] void fail(const std::string& text) const;

  Region& region_;
  Region::Values& values_;
  BackwardPass* backward_;  // of this recomputation; null outside of any
  size_t received_ = 0;
  size_t needed_;  // one past the last slot that is alive
  bool stopped_ = false;
  bool ran_backward_inside_ = false;
  std::vector<std::string> differences_;
  std::vector<std::string> operators_;  // with CheckpointOptions::debug()
};

}  // namespace remat::detail
