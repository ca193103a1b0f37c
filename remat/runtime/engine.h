// The autograd engine with hooks: libtorch's own, which asks it for hooks on
// every tensor it saves, and numbers its backward passes.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace remat::detail {

// What a backward pass must clear when it ends, whether it succeeds or not.
class BackwardListener {
 public:
  virtual ~BackwardListener() = default;
  virtual void backward_ended(uint64_t backward_id) = 0;
};

// One call of Engine::execute, or those of a RecomputeGroup. Rides in the
// thread-local debug information, which libtorch hands on to the engine's own
// threads.
class BackwardPass final : public c10::DebugInfoBase {
 public:
  explicit BackwardPass(uint64_t id) : id_(id) {}

  uint64_t id() const { return id_; }
  void add_listener(const std::shared_ptr<BackwardListener>& listener);
  void end();

 private:
  uint64_t id_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<BackwardListener>> listeners_;
};

// The innermost backward pass that this thread works for; null outside of any.
BackwardPass* current_backward_pass();

// With an id of its own.
std::shared_ptr<BackwardPass> new_backward_pass();

// What backward passes of this thread belong to, if they begin outside of any
// other; null without a RecomputeGroup.
std::shared_ptr<BackwardPass> backward_pass_of_group();
void set_backward_pass_of_group(std::shared_ptr<BackwardPass> pass);

// Makes libtorch use the engine with hooks, once a process. Throws UsageError
// if an engine that is not libtorch's own is installed (libtorch_python brings
// one), before ours or since: its hooks and ours would exclude each other
// silently.
void install_engine();

}  // namespace remat::detail
