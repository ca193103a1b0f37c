#include "remat/runtime/operator_scope.h"

#include <torch/library.h>

#include <mutex>

#include "remat/base/error.h"

namespace remat::detail {
namespace {

// Below autograd, so that the graph is built as ever, and above the kernels.
constexpr auto kKey = c10::DispatchKey::Fake;

thread_local OperatorInterceptor* current = nullptr;

void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
               torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard exclude(kKey);
  OperatorInterceptor* const interceptor = current;
  if (interceptor != nullptr && interceptor->replace(op, *stack)) {
    return;
  }
  op.redispatchBoxed(
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
  if (interceptor != nullptr) {
    interceptor->ran(op, *stack);
  }
}

void install_fallback() {
  static std::once_flag once;
  std::call_once(once, [] {
    try {
      // Never destroyed, as operators run until the process ends.
      static auto* const library = new torch::Library(torch::Library::IMPL, "_",
                                                      kKey, __FILE__, __LINE__);
      library->fallback(
          torch::CppFunction::makeFromBoxedFunction<&intercept>());
    } catch (const c10::Error& error) {
      fail("policy",
           "another library of this process has taken the dispatch key that "
           "policies need: ",
           error.what_without_backtrace());
    }
  });
}

}  // namespace

OperatorInterceptor* current_interceptor() { return current; }

OperatorScope::OperatorScope(OperatorInterceptor* interceptor)
    : outer_(current) {
  if (interceptor != nullptr) {
    // May throw: nothing is changed before.
    install_fallback();
    include_.emplace(kKey);
  }
  current = interceptor;
}

OperatorScope::~OperatorScope() { current = outer_; }

bool BothInterceptors::replace(const c10::OperatorHandle& op,
                               torch::jit::Stack& stack) {
  inner_.replace(op, stack);
  outer_.replace(op, stack);
  return false;
}

void BothInterceptors::ran(const c10::OperatorHandle& op,
                           const torch::jit::Stack& stack) {
  // What the inner one keeps goes to the hooks around, which know it then.
  outer_.ran(op, stack);
  inner_.ran(op, stack);
}

void BothInterceptors::named(std::string_view name, const at::Tensor& tensor) {
  inner_.named(name, tensor);
  outer_.named(name, tensor);
}

ForwardOperatorScope::ForwardOperatorScope(OperatorInterceptor* interceptor) {
  OperatorInterceptor* const outer =
      current == nullptr ? nullptr : current->of_all_operators();
  if (interceptor != nullptr && outer != nullptr) {
    interceptor = &both_.emplace(*interceptor, *outer);
  } else if (outer != nullptr) {
    interceptor = outer;
  }
  if (interceptor != current) {
    scope_.emplace(interceptor);
  }
}

}  // namespace remat::detail
