#include "remat/runtime/kept_results.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "remat/base/error.h"
#include "remat/runtime/checkpoint.h"
#include "remat/runtime/hook_stack.h"
#include "remat/runtime/operator_log.h"
#include "remat/runtime/operator_traits.h"

namespace remat::detail {

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
  if (!computes_new_tensors(op)) {
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
