#include "remat/runtime/operator_tape.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_set>

#include "remat/runtime/operator_log.h"
#include "remat/runtime/operator_traits.h"

namespace remat::detail {
namespace {

// A number in an operation such as x * 2: part of the call, and another kind
// of tensor for the rules that choose dtypes.
bool is_number(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

// The position of the argument; schema.arguments().size() without it.
size_t argument_index(const c10::FunctionSchema& schema, const char* name) {
  const auto index = schema.argumentIndexWithName(name);
  return index.has_value() ? static_cast<size_t>(*index)
                           : schema.arguments().size();
}

// Running statistics in training: the operator changes them, in libtorch 1.13
// without saying so, and what it returns does not depend on them.
bool is_running_statistic(const c10::FunctionSchema& schema,
                          const torch::jit::Stack& arguments, size_t index) {
  const std::string& name = schema.arguments()[index].name();
  if (name != "running_mean" && name != "running_var") {
    return false;
  }
  const size_t training = argument_index(schema, "training");
  return training < arguments.size() && arguments[training].isBool() &&
         arguments[training].toBool();
}

}  // namespace

std::vector<at::Tensor> returned_tensors(const c10::OperatorHandle& op,
                                         const torch::jit::Stack& stack) {
  std::vector<at::Tensor> tensors;
  const auto add = [&tensors](const c10::IValue& value) {
    if (value.isTensor() && value.toTensor().defined()) {
      tensors.push_back(value.toTensor());
    }
  };
  for (const c10::IValue& value :
       torch::jit::last(stack, op.schema().returns().size())) {
    if (value.isTensorList()) {
      for (const c10::IValue& element : value.toListRef()) {
        add(element);
      }
    } else {
      add(value);
    }
  }
  return tensors;
}

bool OperatorTape::can_hold(const at::Tensor& tensor) {
  return tensor.has_storage() && tensor.layout() == at::kStrided &&
         !tensor.is_quantized() && !tensor.is_inference() &&
         !tensor._is_zerotensor();
}

bool OperatorTape::replace(const c10::OperatorHandle& op,
                           torch::jit::Stack& stack) {
  running_ = {};
  running_.number = operators_run_++;
  if (choice_.check) {
    choice_.check(running_.number, op);
  }
  running_.arguments =
      torch::jit::last(stack, op.schema().arguments().size()).vec();
  find_tensors(op);
  take_arguments(op);
  return false;
}

// Moves the tensors of the call from its arguments to running_.tensors.
void OperatorTape::find_tensors(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  for (size_t i = 0; i < running_.arguments.size(); ++i) {
    const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
    const bool scratch = is_running_statistic(schema, running_.arguments, i);
    // rrelu_with_noise fills its noise, in libtorch 1.13 without saying so.
    const bool writes = !scratch && ((alias != nullptr && alias->isWrite()) ||
                                     schema.arguments()[i].name() == "noise");
    const auto take = [&](const c10::IValue& value,
                          std::optional<size_t> element) {
      if (!value.isTensor() || !value.toTensor().defined() ||
          is_number(value.toTensor())) {
        return false;
      }
      const at::Tensor& tensor = value.toTensor();
      running_.tensors.push_back(
          {tensor, tensor.has_storage() ? storage_of(tensor) : nullptr, i,
           element, writes, scratch});
      return true;
    };
    c10::IValue& argument = running_.arguments[i];
    if (argument.isTensorList() || argument.isOptionalTensorList()) {
      c10::List<c10::IValue> list = argument.toList().copy();
      for (size_t element = 0; element < list.size(); ++element) {
        if (take(list.get(element), element)) {
          list.set(element, at::Tensor());
        }
      }
      argument = list;
    } else if (take(argument, std::nullopt)) {
      argument = c10::IValue();
    }
  }
}

void OperatorTape::take_arguments(const c10::OperatorHandle& op) {
  bool can_be_taped =
      // Others may have state that nobody knows of.
      op.operator_name().name.rfind("aten::", 0) == 0 && !is_random(op) &&
      !is_factory(op) && !running_.tensors.empty() &&
      std::all_of(running_.tensors.begin(), running_.tensors.end(),
                  [](const Running::Argument& argument) {
                    return can_hold(argument.tensor);
                  });
  std::vector<TapedTensor> taped;
  for (const Running::Argument& argument : running_.tensors) {
    if (!can_hold(argument.tensor)) {
      continue;
    }
    TapedTensor tensor{.argument = argument.argument,
                       .element = argument.element,
                       .value = 0,
                       .layout = TensorLayout::of(argument.tensor),
                       .scratch = argument.scratch};
    if (argument.writes) {
      // What is written over memory that cannot be computed cannot be either.
      const std::optional<ValueId> known = known_value(argument.tensor);
      can_be_taped &= known.has_value() && values_[*known].can_be_computed();
      tensor.value = known.value_or(0);
    } else if (can_be_taped && !argument.scratch) {
      tensor.value = value_of(argument.tensor);
    }
    taped.push_back(std::move(tensor));
  }
  for (size_t i = 0; can_be_taped && i < taped.size(); ++i) {
    if (!taped[i].scratch) {
      values_[taped[i].value].read = true;
    }
  }
  for (const Running::Argument& argument : running_.tensors) {
    if ((argument.writes || argument.scratch) && can_hold(argument.tensor)) {
      if (const std::optional<ValueId> known = known_value(argument.tensor)) {
        before_write(*known);
      }
    }
  }
  if (can_be_taped) {
    running_.taped.emplace(
        TapedOperator{.number = running_.number,
                      .op = op,
                      .arguments = std::move(running_.arguments),
                      .tensors = std::move(taped),
                      .outputs = {},
                      .writes = {}});
  }
}

void OperatorTape::before_write(ValueId id) {
  TapedValue& value = values_[id];
  if (value.overwritten) {
    return;
  }
  value.overwritten = true;
  if (!value.memory.defined()) {
    return;
  }
  value.memory = value.read && !value.can_be_computed() ? value.memory.clone()
                                                        : at::Tensor();
}

void OperatorTape::ran(const c10::OperatorHandle& op,
                       const torch::jit::Stack& stack) {
  Running running = std::exchange(running_, {});
  const std::vector<at::Tensor> outputs = returned_tensors(op, stack);
  if (!std::all_of(outputs.begin(), outputs.end(), can_hold)) {
    running.taped.reset();
  }
  std::vector<std::pair<ValueId, at::Tensor>> made;
  take_writes(running, made);
  if (!running.taped.has_value()) {
    note_origins(running, outputs);
    return;
  }
  take_outputs(running, outputs, made);
  if (made.empty()) {
    // A view, or nothing at all.
    return;
  }
  operators_.push_back(std::move(*running.taped));
  if (choice_.keeps) {
    std::vector<at::Tensor> tensors;
    int64_t bytes = 0;
    for (const auto& [id, tensor] : made) {
      tensors.push_back(tensor);
      bytes += static_cast<int64_t>(tensor.nbytes());
    }
    const c10::OperatorName& name = op.operator_name();
    if (choice_.keeps(running.number, op,
                      {name.name, name.overload_name, tensors, bytes})) {
      for (const auto& [id, tensor] : made) {
        keep(id, tensor);
      }
    }
  }
}

// The memory that the operator has written to holds new values.
void OperatorTape::take_writes(
    Running& running, std::vector<std::pair<ValueId, at::Tensor>>& made) {
  std::unordered_set<const c10::StorageImpl*> seen;
  for (size_t i = 0; i < running.tensors.size(); ++i) {
    const Running::Argument& argument = running.tensors[i];
    if (argument.scratch && argument.storage != nullptr) {
      note_changed_outside(argument);
    }
    if (!argument.writes || !can_hold(argument.tensor) ||
        !seen.insert(storage_of(argument.tensor)).second) {
      continue;
    }
    if (storage_of(argument.tensor) != argument.storage) {
      // Other memory, not other contents.
      running.taped.reset();
      memory_.erase(argument.storage);
      memory_.erase(storage_of(argument.tensor));
      continue;
    }
    const auto known = memory_.find(storage_of(argument.tensor));
    const bool same_size =
        known != memory_.end() &&
        values_[known->second.value].bytes ==
            static_cast<int64_t>(argument.tensor.storage().nbytes());
    if (!same_size || !running.taped.has_value()) {
      running.taped.reset();
      memory_.erase(storage_of(argument.tensor));
      continue;
    }
    const ValueId id = add_value(argument.tensor, operators_.size());
    // Autograd counts the change when the operator has returned.
    ++memory_.at(storage_of(argument.tensor)).most_version;
    running.taped->writes.emplace_back(i, id);
    made.emplace_back(id, argument.tensor);
  }
}

void OperatorTape::note_origins(const Running& running,
                                const std::vector<at::Tensor>& outputs) {
  std::unordered_set<const c10::StorageImpl*> arguments;
  for (const Running::Argument& argument : running.tensors) {
    if (!can_hold(argument.tensor)) {
      continue;
    }
    arguments.insert(storage_of(argument.tensor));
    if (argument.writes) {
      note_changed_outside(argument);
    }
  }
  for (const at::Tensor& output : outputs) {
    if (can_hold(output) && arguments.insert(storage_of(output)).second) {
      origins_.insert_or_assign(
          storage_of(output),
          Origin{output.storage().getWeakStorageImpl(), true});
    }
  }
}

// It is what it was no more, and whoever reads it from here on gets a value of
// its own.
void OperatorTape::note_changed_outside(const Running::Argument& argument) {
  const c10::StorageImpl* const storage = storage_of(argument.tensor);
  memory_.erase(storage);
  const auto known = origins_.find(storage);
  if (known == origins_.end() || known->second.storage.expired()) {
    origins_.insert_or_assign(
        storage, Origin{argument.tensor.storage().getWeakStorageImpl(), false});
  }
}

// Running statistics, counters: what the function changes is likely to be
// changed again before backward.
bool OperatorTape::is_outside_state(const at::Tensor& tensor) const {
  const auto origin = origins_.find(storage_of(tensor));
  return origin != origins_.end() && !origin->second.made_here &&
         !origin->second.storage.expired();
}

void OperatorTape::take_outputs(
    Running& running, const std::vector<at::Tensor>& outputs,
    std::vector<std::pair<ValueId, at::Tensor>>& made) {
  std::unordered_set<const c10::StorageImpl*> known;
  for (const Running::Argument& argument : running.tensors) {
    known.insert(storage_of(argument.tensor));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!known.insert(storage_of(outputs[i])).second) {
      continue;
    }
    const ValueId id = add_value(outputs[i], operators_.size());
    running.taped->outputs.emplace_back(i, id);
    made.emplace_back(id, outputs[i]);
  }
}

void OperatorTape::named(std::string_view name, const at::Tensor& tensor) {
  if (!tensor.defined() || !can_hold(tensor) ||
      std::find(choice_.names.begin(), choice_.names.end(), name) ==
          choice_.names.end()) {
    return;
  }
  const OperatorScope unseen(nullptr);
  keep(value_of(tensor), tensor);
}

std::optional<ValueId> OperatorTape::known_value(const at::Tensor& tensor) {
  const auto found = memory_.find(storage_of(tensor));
  if (found != memory_.end()) {
    Memory& memory = found->second;
    const auto storage = memory.storage.lock();
    const uint32_t version = memory.version.current_version();
    if (storage && version >= memory.least_version &&
        version <= memory.most_version) {
      memory.least_version = version;
      return memory.value;
    }
    at::Tensor& held = values_[memory.value].memory;
    if (storage && held.defined() && storage_of(held) == storage.get()) {
      // Somebody changed it unseen.
      held = at::Tensor();
    }
  }
  return std::nullopt;
}

ValueId OperatorTape::value_of(const at::Tensor& tensor) {
  if (const std::optional<ValueId> known = known_value(tensor)) {
    return *known;
  }
  const ValueId id = add_value(tensor, TapedValue::kNoProducer);
  const auto origin = origins_.find(storage_of(tensor));
  values_[id].made_here = origin != origins_.end() &&
                          origin->second.made_here &&
                          !origin->second.storage.expired();
  if (choice_.hold) {
    const at::Tensor memory = flat_memory(tensor);
    values_[id].memory = is_outside_state(tensor) ? memory.clone() : memory;
  }
  return id;
}

ValueId OperatorTape::add_value(const at::Tensor& tensor, size_t producer) {
  const ValueId id = values_.size();
  values_.emplace_back();
  values_.back().producer = producer;
  values_.back().bytes = static_cast<int64_t>(tensor.storage().nbytes());
  const c10::VariableVersion& version =
      tensor.unsafeGetTensorImpl()->version_counter();
  const uint32_t now = tensor.is_inference() ? 0 : version.current_version();
  memory_.insert_or_assign(
      storage_of(tensor),
      Memory{id, tensor.storage().getWeakStorageImpl(), version, now, now});
  return id;
}

void OperatorTape::keep(ValueId id, const at::Tensor& tensor) {
  TapedValue& value = values_[id];
  if (!value.can_be_computed() || value.overwritten) {
    return;
  }
  if (choice_.hold) {
    value.memory = flat_memory(tensor);
  }
}

void OperatorTape::drop_changed() {
  for (const auto& [storage, memory] : memory_) {
    const uint32_t version = memory.version.current_version();
    at::Tensor& held = values_[memory.value].memory;
    if ((version < memory.least_version || version > memory.most_version) &&
        held.defined() && storage_of(held) == storage) {
      held = at::Tensor();
    }
  }
}

void OperatorTape::forward_ended() {
  running_ = {};
  drop_changed();
  memory_.clear();
  origins_.clear();
}

void OperatorTape::forget(size_t index) {
  operators_[index].arguments = {};
  operators_[index].tensors = {};
}

}  // namespace remat::detail
