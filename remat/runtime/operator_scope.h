// Sees, and may replace, each ATen operator that the calling thread runs below
// autograd.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <string_view>

namespace remat::detail {

class OperatorInterceptor {
 public:
  virtual ~OperatorInterceptor() = default;

  // Before the call, with the arguments on the stack. True: the results stand
  // there instead, and the operator is not run.
  virtual bool replace(const c10::OperatorHandle& op,
                       torch::jit::Stack& stack) = 0;

  // After it, with the results on the stack.
  virtual void ran(const c10::OperatorHandle& op,
                   const torch::jit::Stack& stack) = 0;

  // remat::keep(name, tensor).
  virtual void named(std::string_view name, const at::Tensor& tensor) = 0;

  // What of it also sees the operators of regions inside its own; null:
  // nothing, as their recomputation is their own affair.
  virtual OperatorInterceptor* of_all_operators() { return nullptr; }
};

// Passes on to two, in forward, where none replaces anything. The outer one
// sees all operators.
class BothInterceptors final : public OperatorInterceptor {
 public:
  BothInterceptors(OperatorInterceptor& inner, OperatorInterceptor& outer)
      : inner_(inner), outer_(outer) {}

  bool replace(const c10::OperatorHandle& op,
               torch::jit::Stack& stack) override;
  void ran(const c10::OperatorHandle& op,
           const torch::jit::Stack& stack) override;
  void named(std::string_view name, const at::Tensor& tensor) override;
  OperatorInterceptor* of_all_operators() override {
    return inner_.of_all_operators() != nullptr ? this : &outer_;
  }

 private:
  OperatorInterceptor& inner_;
  OperatorInterceptor& outer_;
};

// Of the innermost scope; null: none, or a scope without.
OperatorInterceptor* current_interceptor();

// Sends the operators of this thread to the interceptor until scope end; null:
// to none, also not to the one around: for what regions and hooks do for
// themselves, which is not the same in forward and recomputation. What an
// operator calls itself is its own affair. The first use installs a fallback
// for a dispatch key that libtorch leaves free; throws Error where another
// library has taken it.
class OperatorScope {
 public:
  explicit OperatorScope(OperatorInterceptor* interceptor);
  ~OperatorScope();
  OperatorScope(const OperatorScope&) = delete;
  OperatorScope& operator=(const OperatorScope&) = delete;

 private:
  OperatorInterceptor* outer_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> include_;
};

// The scope of a region's forward: those around that see all operators see its
// operators too.
class ForwardOperatorScope {
 public:
  // interceptor may be null.
  explicit ForwardOperatorScope(OperatorInterceptor* interceptor);
  ForwardOperatorScope(const ForwardOperatorScope&) = delete;
  ForwardOperatorScope& operator=(const ForwardOperatorScope&) = delete;

 private:
  std::optional<BothInterceptors> both_;
  std::optional<OperatorScope> scope_;
};

}  // namespace remat::detail
