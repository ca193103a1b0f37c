#include "remat/runtime/hook_stack.h"

#include <utility>

#include "remat/base/error.h"

namespace remat::detail {
namespace {

thread_local HookStack stack;

}  // namespace

std::unique_ptr<torch::autograd::SavedVariableHooks> innermost_hooks() {
  return stack.handlers.empty() ? nullptr : stack.handlers.back()->make_hooks();
}

void disable_hooks(std::string message) {
  if (!stack.handlers.empty()) {
    fail("saved_tensor_hooks",
         "hooks stand in this thread and cannot be disabled: ", message);
  }
  stack.disabled.push_back(std::move(message));
}

void enable_hooks() { stack.disabled.pop_back(); }

HookScope::HookScope(std::shared_ptr<SavedTensorHandler> handler) {
  if (!stack.disabled.empty()) {
    fail("saved_tensor_hooks", stack.disabled.back());
  }
  stack.handlers.push_back(std::move(handler));
}

HookScope::~HookScope() { stack.handlers.pop_back(); }

HookStackSwap::HookStackSwap(std::shared_ptr<SavedTensorHandler> handler)
    : outer_(std::exchange(stack, {})) {
  stack.handlers.push_back(std::move(handler));
}

HookStackSwap::~HookStackSwap() { stack = std::move(outer_); }

size_t hook_depth() { return stack.handlers.size(); }

OuterHooksScope::OuterHooksScope(size_t depth)
    : inner_(stack.handlers.begin() + static_cast<ptrdiff_t>(depth),
             stack.handlers.end()) {
  stack.handlers.resize(depth);
}

OuterHooksScope::~OuterHooksScope() {
  stack.handlers.insert(stack.handlers.end(), inner_.begin(), inner_.end());
}

}  // namespace remat::detail
