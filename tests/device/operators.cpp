// The operators of the software device: those of the CPU, queued.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <thread>

#include "remat/runtime/torch_compat.h"
#include "tests/device/memory.h"
#include "tests/device/software_device.h"

namespace remat::software {
namespace {

#if REMAT_TORCH_VERSION >= 203
template <class T>
using Optional = std::optional<T>;
#else
template <class T>
using Optional = c10::optional<T>;
#endif

bool is_ours(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == at::kPrivateUse1;
}

// The device's memory as a tensor of the CPU. Holds nothing alive: what a
// kernel finds there when its turn comes is what the program must see to.
at::Tensor on_cpu(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return at::empty_strided(tensor.sizes(), tensor.strides(),
                             tensor.options().device(at::kCPU));
  }
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

// Of the same shape; zeros are indices that are always in range.
at::Tensor zeros(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    last += (std::max<int64_t>(tensor.size(i), 1) - 1) * tensor.stride(i);
  }
  return at::zeros({last + 1}, tensor.options().device(at::kCPU))
      .as_strided(tensor.sizes(), tensor.strides());
}

template <class Map>
c10::IValue map_tensors(const c10::IValue& value, const Map& map) {
  const auto map_one = [&map](const at::Tensor& tensor) {
    return is_ours(tensor) ? map(tensor) : tensor;
  };
  if (value.isTensor()) {
    return map_one(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(map_one(tensor));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<Optional<at::Tensor>> list;
    for (const Optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor.has_value() ? Optional<at::Tensor>(map_one(*tensor))
                                        : Optional<at::Tensor>());
    }
    return list;
  }
  if (value.isDevice() && value.toDevice().type() == at::kPrivateUse1) {
    return at::Device(at::kCPU);
  }
  return value;
}

// A kernel runs in whatever thread its turn comes in: with no state of that
// thread's, and no graph.
class KernelState {
 private:
  static const at::ThreadLocalState& clean() {
    static const at::ThreadLocalState* const state = [] {
      const at::ThreadLocalState* fresh = nullptr;
      std::thread([&fresh] { fresh = new at::ThreadLocalState(); }).join();
      return fresh;
    }();
    return *state;
  }
  const at::ThreadLocalStateGuard state_{clean()};
  const at::AutoDispatchBelowADInplaceOrView no_graph_;
};

template <class Map>
torch::jit::Stack call_on_cpu(const c10::OperatorHandle& op,
                              const torch::jit::Stack& arguments,
                              const Map& map) {
  torch::jit::Stack stack;
  for (const c10::IValue& argument : arguments) {
    stack.push_back(map_tensors(argument, map));
  }
  op.callBoxed(&stack);
  return stack;
}

void run_now(const c10::OperatorHandle& op, torch::jit::Stack* stack,
             const torch::jit::Stack& arguments) {
  scheduler().synchronize(current_stream());
  const KernelState state;
  *stack = call_on_cpu(op, arguments, on_cpu);
}

// Without outputs: the operator writes to arguments.
void queue_kernel(const c10::OperatorHandle& op,
                  const torch::jit::Stack& arguments,
                  std::vector<at::Tensor> outputs,
                  const torch::jit::Stack& written = {}) {
  std::vector<std::vector<int64_t>> written_sizes;
  for (const c10::IValue& value : written) {
    written_sizes.push_back(value.isTensor() ? value.toTensor().sizes().vec()
                                             : std::vector<int64_t>());
  }
  torch::jit::Stack on_memory;
  for (const c10::IValue& argument : arguments) {
    on_memory.push_back(map_tensors(argument, on_cpu));
  }
  for (at::Tensor& output : outputs) {
    output = output.defined() ? on_cpu(output) : output;
  }
  scheduler().push(
      current_stream(), costs().seconds_of_operator,
      [op, on_memory = std::move(on_memory), outputs = std::move(outputs),
       written_sizes = std::move(written_sizes)] {
        const KernelState state;
        torch::jit::Stack results = on_memory;
        op.callBoxed(&results);
        for (size_t i = 0; outputs.empty() && i < results.size(); ++i) {
          TORCH_CHECK(!results[i].isTensor() ||
                          results[i].toTensor().sizes() == written_sizes[i],
                      "software device: nothing is resized by ", op.schema());
        }
        for (size_t i = 0; i < outputs.size(); ++i) {
          if (outputs[i].defined()) {
            outputs[i].copy_(results[i].toTensor());
          }
        }
      });
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  TORCH_CHECK(stack->size() == count, "software device: ", schema);
  const torch::jit::Stack arguments = std::move(*stack);
  stack->clear();
  std::vector<c10::IValue> written;
  for (size_t i = 0; i < count; ++i) {
    const auto* const alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) {
      written.push_back(arguments[i]);
    }
  }
  for (const c10::Argument& result : schema.returns()) {
    if (result.type()->kind() != c10::TypeKind::TensorType) {
      return run_now(op, stack, arguments);
    }
    TORCH_CHECK(result.alias_info() == nullptr || !written.empty(),
                "software device: no view operator ", schema);
  }
  if (!written.empty()) {
    TORCH_CHECK(schema.returns().size() <= written.size(),
                "software device: no operator that writes and returns ",
                schema);
    queue_kernel(op, arguments, {}, written);
    written.resize(schema.returns().size());
    *stack = std::move(written);
    return;
  }
  std::vector<at::Tensor> outputs;
  {
    torch::jit::Stack shapes;
    {
      const KernelState state;
      shapes = call_on_cpu(op, arguments, zeros);
    }
    for (const c10::IValue& shape : shapes) {
      const at::Tensor& like = shape.toTensor();
      outputs.push_back(like.defined()
                            ? at::empty_strided(like.sizes(), like.strides(),
                                                like.options().device(kDevice))
                            : at::Tensor());
    }
  }
  queue_kernel(op, arguments, outputs);
  for (at::Tensor& output : outputs) {
    stack->emplace_back(std::move(output));
  }
}

// All copies, within the device and to and from the host. Of memory of the
// host, too, only the address is kept.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to,
                     bool non_blocking) {
  const bool is_transfer = !is_ours(from) || !is_ours(to);
  if (is_transfer) {
    count_copy();
  }
  const double seconds = is_transfer ? costs().seconds_of_copied_byte *
                                           static_cast<double>(to.nbytes())
                                     : costs().seconds_of_operator;
  const auto with_bits = [](const at::Tensor& tensor) {
    at::Tensor same = on_cpu(tensor);
    same._set_conj(tensor.is_conj());
    same._set_neg(tensor.is_neg());
    return same;
  };
  scheduler().push(current_stream(), seconds,
                   [to = with_bits(to), from = with_bits(from)] {
                     const KernelState state;
                     to.copy_(from);
                   });
  if (is_transfer && !non_blocking) {
    scheduler().synchronize(current_stream());
  }
  return to;
}

const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(at::IntArrayRef sizes, Optional<at::ScalarType> dtype,
                 Optional<at::Layout>, Optional<at::Device>, Optional<bool>,
                 Optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, allocator(), kKeys,
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         Optional<at::ScalarType> dtype, Optional<at::Layout>,
                         Optional<at::Device>, Optional<bool>) {
  return at::detail::empty_strided_generic(sizes, strides, allocator(), kKeys,
                                           c10::dtype_or_default(dtype));
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// Pointers, not TORCH_FN, whose check UndefinedBehaviorSanitizer does not let
// be done by the compiler.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("view_as_complex", &at::native::view_as_complex);
  library.impl("view_as_real", &at::native::view_as_real);
  library.impl("unfold", &at::native::unfold);
}

// Copies resolve these bits themselves.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace
}  // namespace remat::software
