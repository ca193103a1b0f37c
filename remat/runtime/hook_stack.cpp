#include "remat/runtime/hook_stack.h"

#include <utility>

namespace remat::detail {
namespace {

thread_local HookStack stack;

}  // namespace

std::unique_ptr<torch::autograd::SavedVariableHooks> innermost_hooks() {
  return stack.empty() ? nullptr : stack.back()->make_hooks();
}

HookScope::HookScope(std::shared_ptr<SavedTensorHandler> handler) {
  stack.push_back(std::move(handler));
}

HookScope::~HookScope() { stack.pop_back(); }

HookStackSwap::HookStackSwap(std::shared_ptr<SavedTensorHandler> handler)
    : outer_(std::exchange(stack, {})) {
  stack.push_back(std::move(handler));
}

HookStackSwap::~HookStackSwap() { stack = std::move(outer_); }

}  // namespace remat::detail
