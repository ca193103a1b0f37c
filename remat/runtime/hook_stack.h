// The calling thread's stack of saved-tensor hooks: whatever autograd saves in
// this thread goes to the innermost entry.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace remat::detail {

// One entry of the stack.
class SavedTensorHandler {
 public:
  virtual ~SavedTensorHandler() = default;
  // Called once for each tensor that autograd saves; the result then gets it
  // by call_pack_hook and must give it back, as often as it is asked.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() = 0;
};

struct HookStack {
  std::vector<std::shared_ptr<SavedTensorHandler>> handlers;
  // Why no entry may be pushed, innermost last; empty: it may.
  std::vector<std::string> disabled;
};

// The hooks for one saved tensor; null with an empty stack.
std::unique_ptr<torch::autograd::SavedVariableHooks> innermost_hooks();

// No entry may be pushed until enable_hooks(); calls nest. Throws Error where
// entries stand.
void disable_hooks(std::string message);
void enable_hooks();

// Pushes an entry; pops it at scope end. Throws Error with the message of
// disable_hooks().
class HookScope {
 public:
  explicit HookScope(std::shared_ptr<SavedTensorHandler> handler);
  ~HookScope();
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;
};

// Replaces the whole stack by one entry; puts it back at scope end. A
// recomputation starts so: the hooks around its backward are not its own.
class HookStackSwap {
 public:
  explicit HookStackSwap(std::shared_ptr<SavedTensorHandler> handler);
  ~HookStackSwap();
  HookStackSwap(const HookStackSwap&) = delete;
  HookStackSwap& operator=(const HookStackSwap&) = delete;

 private:
  HookStack outer_;
};

// How many entries there are.
size_t hook_depth();

// Takes all entries but the outermost `depth` away; puts them back at scope
// end.
class OuterHooksScope {
 public:
  explicit OuterHooksScope(size_t depth);
  ~OuterHooksScope();
  OuterHooksScope(const OuterHooksScope&) = delete;
  OuterHooksScope& operator=(const OuterHooksScope&) = delete;

 private:
  std::vector<std::shared_ptr<SavedTensorHandler>> inner_;
};

}  // namespace remat::detail
