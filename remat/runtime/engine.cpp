#include "remat/runtime/engine.h"

#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <typeinfo>
#include <utility>

#include "remat/base/error.h"
#include "remat/runtime/hook_stack.h"

namespace remat::detail {
namespace {

using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::variable_list;

// A slot of the thread-local debug information that libtorch itself leaves to
// its tests.
const auto kBackwardSlot = c10::DebugInfoKind::TEST_INFO_2;

thread_local std::shared_ptr<BackwardPass> pass_of_group;

class HookEngine final : public Engine {
 public:
  variable_list execute(const edge_list& roots, const variable_list& inputs,
                        bool keep_graph, bool create_graph,
                        bool accumulate_grad,
                        const edge_list& outputs = {}) override {
    const bool is_of_group =
        pass_of_group != nullptr && current_backward_pass() == nullptr;
    const auto pass = is_of_group ? pass_of_group : new_backward_pass();
    struct EndAtExit {
      BackwardPass* pass;
      ~EndAtExit() {
        if (pass != nullptr) {
          pass->end();
        }
      }
    } end_at_exit{is_of_group ? nullptr : pass.get()};
    const c10::DebugInfoGuard guard(kBackwardSlot, pass);
    return Engine::execute(roots, inputs, keep_graph, create_graph,
                           accumulate_grad, outputs);
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks>
  get_default_saved_variable_hooks() override {
    return innermost_hooks();
  }
};

Engine& hook_engine() {
  // Never destroyed: the engine's threads may outlive static destructors.
  static auto* engine = new HookEngine();
  return *engine;
}

}  // namespace

void BackwardPass::add_listener(
    const std::shared_ptr<BackwardListener>& listener) {
  const std::lock_guard lock(mutex_);
  listeners_.push_back(listener);
}

void BackwardPass::end() {
  std::vector<std::weak_ptr<BackwardListener>> listeners;
  {
    const std::lock_guard lock(mutex_);
    listeners = std::exchange(listeners_, {});
  }
  for (const auto& weak : listeners) {
    if (const auto listener = weak.lock()) {
      listener->backward_ended(id_);
    }
  }
}

std::shared_ptr<BackwardPass> new_backward_pass() {
  static std::atomic<uint64_t> passes{0};
  return std::make_shared<BackwardPass>(++passes);
}

std::shared_ptr<BackwardPass> backward_pass_of_group() { return pass_of_group; }

void set_backward_pass_of_group(std::shared_ptr<BackwardPass> pass) {
  pass_of_group = std::move(pass);
}

BackwardPass* current_backward_pass() {
  return static_cast<BackwardPass*>(
      c10::ThreadLocalDebugInfo::get(kBackwardSlot));
}

namespace {

[[noreturn]] void refuse_engine(const Engine& present, const char* when) {
  fail_usage("checkpoint", "the autograd engine of this process is ",
             typeid(present).name(), when,
             ", not libtorch's own (a process that loads libtorch_python has "
             "Python's); remat needs a process without it");
}

}  // namespace

void install_engine() {
  static std::once_flag once;
  std::call_once(once, [] {
    const Engine& present = Engine::get_default_engine();
    if (typeid(present) != typeid(Engine)) {
      refuse_engine(present, "");
    }
    torch::autograd::set_default_engine_stub(hook_engine);
  });
  // Each time, as a library that is loaded later may bring its own: regions
  // would do nothing, silently.
  const Engine& present = Engine::get_default_engine();
  if (&present != &hook_engine()) {
    refuse_engine(present, ", which was installed after remat's");
  }
}

}  // namespace remat::detail
