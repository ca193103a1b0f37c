#include "remat/runtime/print_saved.h"

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/Storage.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <map>
#include <optional>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/runtime/engine.h"
#include "remat/runtime/hook_stack.h"

namespace remat {
namespace detail {
namespace {

// The operators that this thread is in, outermost first.
thread_local std::vector<std::string> operators;

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  operators.emplace_back(function.name());
  return nullptr;
}

void leave(const at::RecordFunction&, at::ObserverContext*) {
  if (!operators.empty()) {
    operators.pop_back();
  }
}

class OperatorNames {
 public:
  OperatorNames()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(enter, leave)
                .scopes({at::RecordScope::FUNCTION}))) {}
  ~OperatorNames() {
    at::removeCallback(handle_);
    operators.clear();
  }
  OperatorNames(const OperatorNames&) = delete;
  OperatorNames& operator=(const OperatorNames&) = delete;

 private:
  at::CallbackHandle handle_;
};

const void* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage()
             ? tensor.storage().unsafeGetStorageImpl()
             : static_cast<const void*>(tensor.unsafeGetTensorImpl());
}

int64_t memory_bytes(const at::Tensor& tensor) {
  return tensor.has_storage() ? static_cast<int64_t>(tensor.storage().nbytes())
                              : 0;
}

}  // namespace

// Shared by the recorder and the hooks, which the graph may keep longer.
class SavedList {
 public:
  explicit SavedList(const std::vector<at::Tensor>& inputs) {
    for (const at::Tensor& input : inputs) {
      if (input.defined()) {
        inputs_[memory_of(input)] = true;
      }
    }
  }

  void add(const at::Tensor& tensor) {
    SavedTensor saved;
    saved.saved_by = operators.empty() ? "" : operators.back();
    saved.dtype = c10::toString(tensor.scalar_type());
    saved.sizes = tensor.sizes().vec();
    const void* const memory = memory_of(tensor);
    if (inputs_.count(memory) > 0) {
      saved.kind = SavedKind::kInput;
    } else if (is_parameter(tensor)) {
      saved.kind = SavedKind::kParameter;
    }
    if (seen_.emplace(memory, true).second) {
      saved.bytes = memory_bytes(tensor);
    }
    list_.push_back(std::move(saved));
  }

  std::vector<SavedTensor> take() { return std::move(list_); }

 private:
  // A leaf, or a view of one: w.t() in a linear layer.
  static bool is_parameter(const at::Tensor& tensor) {
    const at::Tensor base =
        tensor.is_view() ? at::Tensor(tensor._base()) : tensor;
    return base.is_leaf() && base.requires_grad();
  }

  std::map<const void*, bool> inputs_;
  std::map<const void*, bool> seen_;
  std::vector<SavedTensor> list_;
};

namespace {

class RecordingHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit RecordingHooks(std::shared_ptr<SavedList> list)
      : list_(std::move(list)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    list_->add(tensor);
    tensor_ = tensor.detach();
  }

  at::Tensor call_unpack_hook() override { return tensor_; }

 private:
  std::shared_ptr<SavedList> list_;
  at::Tensor tensor_;
};

class RecordingHandler final : public SavedTensorHandler {
 public:
  explicit RecordingHandler(std::shared_ptr<SavedList> list)
      : list_(std::move(list)) {}

  std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() override {
    return std::make_unique<RecordingHooks>(list_);
  }

 private:
  std::shared_ptr<SavedList> list_;
};

}  // namespace

struct SavedTensorRecorder::State {
  explicit State(const std::vector<at::Tensor>& inputs)
      : list(std::make_shared<SavedList>(inputs)),
        hooks(std::make_shared<RecordingHandler>(list)) {}

  std::shared_ptr<SavedList> list;
  c10::AutoGradMode with_grad{true};
  OperatorNames names;
  HookScope hooks;
};

SavedTensorRecorder::SavedTensorRecorder(
    const std::vector<at::Tensor>& inputs) {
  install_engine();
  state_ = std::make_unique<State>(inputs);
}

SavedTensorRecorder::~SavedTensorRecorder() = default;

std::vector<SavedTensor> SavedTensorRecorder::take() {
  return state_->list->take();
}

}  // namespace detail

namespace {

const char* kind_name(SavedKind kind) {
  switch (kind) {
    case SavedKind::kInput:
      return "input";
    case SavedKind::kParameter:
      return "parameter";
    case SavedKind::kComputed:
      return "computed";
  }
  return "";
}

}  // namespace

void print_saved_table(std::ostream& out,
                       const std::vector<SavedTensor>& saved) {
  std::vector<std::string> tensors;
  size_t width = 6;
  for (const SavedTensor& tensor : saved) {
    tensors.push_back(remat::str(tensor.dtype, at::IntArrayRef(tensor.sizes)));
    width = std::max(width, tensors.back().size());
  }
  const auto line = [&](const std::string& bytes, const std::string& kind,
                        const std::string& tensor, const std::string& by) {
    out << std::right << std::setw(10) << bytes << "  " << std::left
        << std::setw(10) << kind << std::setw(static_cast<int>(width) + 2)
        << tensor << by << '\n';
  };
  line("bytes", "what", "tensor", "saved by");
  int64_t total = 0;
  int64_t computed = 0;
  for (size_t i = 0; i < saved.size(); ++i) {
    const SavedTensor& tensor = saved[i];
    total += tensor.bytes;
    computed += tensor.kind == SavedKind::kComputed ? tensor.bytes : 0;
    line(tensor.bytes > 0 ? format_bytes(tensor.bytes) : "listed",
         kind_name(tensor.kind), tensors[i],
         tensor.saved_by.empty() ? "a region, as its input" : tensor.saved_by);
  }
  out << saved.size() << " tensors keep " << format_bytes(total) << ", "
      << format_bytes(computed) << " of it computed here\n";
}

void print_saved_table(const std::vector<SavedTensor>& saved) {
  print_saved_table(std::cout, saved);
}

}  // namespace remat
