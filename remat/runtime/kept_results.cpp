#include "remat/runtime/kept_results.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "remat/base/error.h"
#include "remat/runtime/checkpoint.h"
#include "remat/runtime/hook_stack.h"
#include "remat/runtime/operator_log.h"

namespace remat::detail {
namespace {

// New memory, for somebody to fill: a kernel that is no operator may write to
// it unseen, and it costs nothing to make again. Not computed from tensors, or
// only shaped like one.
bool is_factory(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  const auto& arguments = op.schema().arguments();
  return name.rfind("aten::new_", 0) == 0 ||
         (name.size() > 5 && name.rfind("_like") == name.size() - 5) ||
         std::none_of(arguments.begin(), arguments.end(),
                      [](const c10::Argument& argument) {
                        return argument.type()->str().find("Tensor") !=
                               std::string::npos;
                      });
}

// Outputs that are memory of their own, the same each time: no views, nothing
// in place, nothing random, tensors only.
bool can_be_kept(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  if (schema.returns().empty() || schema.is_mutable() ||
      op.hasTag(at::Tag::nondeterministic_seeded) || is_factory(op)) {
    return false;
  }
  return std::all_of(
      schema.returns().begin(), schema.returns().end(),
      [](const c10::Argument& output) {
        return output.alias_info() == nullptr &&
               output.type()->isSubtypeOf(*c10::TensorType::get());
      });
}

// The same memory and version counter, without the graph that autograd is about
// to attach to the tensor.
at::Tensor without_graph(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return at::Tensor(impl.shallow_copy_and_detach(
      impl.version_counter(), /*allow_tensor_metadata_change=*/false));
}

}  // namespace

bool KeptResults::Result::was_changed() const {
  for (size_t i = 0; i < versions.size(); ++i) {
    if (versions[i].current_version() != version_numbers[i]) {
      return true;
    }
  }
  return false;
}

void KeptResults::add(size_t number, std::string name,
                      const std::vector<at::Tensor>& outputs) {
  const auto [entry, is_new] = results_.try_emplace(number);
  if (!is_new) {
    return;
  }
  Result& result = entry->second;
  result.name = std::move(name);
  const OuterHooksScope outer(hook_depth_);
  const OperatorScope unseen(nullptr);
  for (const at::Tensor& output : outputs) {
    result.outputs.emplace_back();
    if (!output.defined()) {
      continue;
    }
    const at::Tensor alias = without_graph(output);
    result.outputs.back().defined = true;
    result.outputs.back().saved =
        torch::autograd::SavedVariable(alias, /*is_output=*/false);
    result.versions.push_back(alias.unsafeGetTensorImpl()->version_counter());
    result.version_numbers.push_back(result.versions.back().current_version());
    bytes_ += static_cast<int64_t>(output.nbytes());
  }
}

std::map<size_t, KeptResults::Unpacked> KeptResults::unpack() const {
  std::map<size_t, Unpacked> unpacked;
  for (const auto& [number, result] : results_) {
    if (result.was_changed()) {
      continue;
    }
    Unpacked& entry = unpacked[number];
    entry.name = result.name;
    for (const Output& output : result.outputs) {
      entry.outputs.push_back(output.defined ? output.saved.unpack()
                                             : at::Tensor());
    }
  }
  return unpacked;
}

void ResultRecorder::ran(const c10::OperatorHandle& op,
                         const torch::jit::Stack& stack) {
  const size_t number = operators_++;
  if (!can_be_kept(op)) {
    return;
  }
  const size_t count = op.schema().returns().size();
  std::vector<at::Tensor> outputs;
  int64_t bytes = 0;
  for (const c10::IValue& output : torch::jit::last(stack, count)) {
    outputs.push_back(output.toTensor());
    bytes += outputs.back().defined()
                 ? static_cast<int64_t>(outputs.back().nbytes())
                 : 0;
  }
  const Policy& policy = kept_.policy();
  const c10::OperatorName& name = op.operator_name();
  if (policy.keeps &&
      policy.keeps({name.name, name.overload_name, outputs, bytes})) {
    kept_.add(number, operator_name(op), outputs);
  } else if (!policy.names.empty() && count == 1) {
    remember(number, operator_name(op), outputs[0]);
  }
}

void ResultRecorder::remember(size_t number, const std::string& name,
                              const at::Tensor& output) {
  if (!output.defined() || !output.has_storage()) {
    return;
  }
  const c10::VariableVersion& version =
      output.unsafeGetTensorImpl()->version_counter();
  computed_.insert_or_assign(
      output.storage().unsafeGetStorageImpl(),
      Computed{number, name, output.storage().getWeakStorageImpl(),
               output.sizes().vec(), output.strides().vec(),
               output.storage_offset(), output.options(), version,
               version.current_version()});
}

void ResultRecorder::named(std::string_view name, const at::Tensor& tensor) {
  const auto& names = kept_.policy().names;
  if (!tensor.defined() || !tensor.has_storage() ||
      std::find(names.begin(), names.end(), name) == names.end()) {
    return;
  }
  const auto found = computed_.find(tensor.storage().unsafeGetStorageImpl());
  if (found == computed_.end()) {
    return;
  }
  const Computed& computed = found->second;
  c10::intrusive_ptr<c10::StorageImpl> storage = computed.storage.lock();
  // Address and memory of another tensor, now gone; or changed since.
  if (!storage || storage.get() != tensor.storage().unsafeGetStorageImpl() ||
      computed.version.current_version() != computed.version_number) {
    return;
  }
  const OperatorScope unseen(nullptr);
  at::Tensor output = at::empty({0}, computed.options);
  output.unsafeGetTensorImpl()->set_version_counter(computed.version);
  output.set_(c10::Storage(std::move(storage)), computed.offset, computed.sizes,
              computed.strides);
  kept_.add(computed.number, computed.name, {output});
}

bool ResultReplay::replace(const c10::OperatorHandle& op,
                           torch::jit::Stack& stack) {
  const size_t number = operators_++;
  const auto kept = results_.find(number);
  if (kept == results_.end()) {
    return false;
  }
  if (kept->second.name != operator_name(op)) {
    throw CheckpointError(remat::str(
        "[checkpoint] ", region_, " ran ", operator_name(op),
        " as its operator ", number,
        " when it was recomputed; in forward that was ", kept->second.name,
        ", whose result its policy kept. A region must compute the same "
        "again."));
  }
  torch::jit::drop(stack, op.schema().arguments().size());
  for (const at::Tensor& output : kept->second.outputs) {
    // An alias of its own: autograd attaches the recomputed graph to it.
    stack.emplace_back(output.defined() ? without_graph(output) : output);
  }
  results_.erase(kept);
  return true;
}

}  // namespace remat::detail
