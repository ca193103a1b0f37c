#include "remat/runtime/tape_replay.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <unordered_set>

#include "remat/base/error.h"
#include "remat/runtime/checkpoint.h"
#include "remat/runtime/operator_log.h"

namespace remat::detail {
namespace {

// One replay: the values that there are, and how often each will be read yet.
class Replay {
 public:
  Replay(const OperatorTape& tape, const std::vector<size_t>& operators,
         const std::vector<ValueId>& wanted, ValueMemory sources)
      : tape_(tape),
        wanted_(wanted.begin(), wanted.end()),
        values_(std::move(sources)) {
    for (const size_t index : operators) {
      for (const TapedTensor& tensor : tape.operators()[index].tensors) {
        if (!tensor.scratch) {
          ++reads_left_[tensor.value];
        }
      }
    }
  }

  void run(const TapedOperator& taped) {
    ValueMemory changed;
    for (const auto& [argument, id] : taped.writes) {
      const ValueId before = taped.tensors[argument].value;
      changed.emplace(before, writable(before, taped));
    }
    torch::jit::Stack stack = arguments_of(taped, changed);
    taped.op.callBoxed(&stack);
    take_results(taped, stack, changed);
    for (const TapedTensor& tensor : taped.tensors) {
      if (!tensor.scratch && --reads_left_[tensor.value] == 0 &&
          wanted_.count(tensor.value) == 0) {
        values_.erase(tensor.value);
      }
    }
  }

  ValueMemory take_wanted() {
    ValueMemory result;
    for (const ValueId id : wanted_) {
      result.emplace(id, values_.at(id));
    }
    return result;
  }

 private:
  // The memory of a value for the operator to change: its own if nobody else
  // needs it.
  at::Tensor writable(ValueId id, const TapedOperator& taped) {
    const auto reads_here =
        std::count_if(taped.tensors.begin(), taped.tensors.end(),
                      [id](const TapedTensor& tensor) {
                        return !tensor.scratch && tensor.value == id;
                      });
    const at::Tensor& flat = values_.at(id);
    return computed_.count(id) > 0 && wanted_.count(id) == 0 &&
                   reads_left_[id] == reads_here
               ? flat
               : flat.clone();
  }

  torch::jit::Stack arguments_of(const TapedOperator& taped,
                                 const ValueMemory& changed) {
    torch::jit::Stack stack = taped.arguments;
    for (size_t i = 0; i < taped.tensors.size(); ++i) {
      const TapedTensor& place = taped.tensors[i];
      const auto written = changed.find(place.value);
      const at::Tensor tensor = place.scratch ? place.layout.zeros()
                                : written != changed.end()
                                    ? place.layout.in(written->second)
                                    : place.layout.in(values_.at(place.value));
      c10::IValue& argument = stack[place.argument];
      if (!place.element.has_value()) {
        argument = tensor;
        continue;
      }
      if (i == 0 || taped.tensors[i - 1].argument != place.argument) {
        // The list belongs to the tape.
        argument = argument.toList().copy();
      }
      argument.toList().set(*place.element, tensor);
    }
    return stack;
  }

  void take_results(const TapedOperator& taped, const torch::jit::Stack& stack,
                    const ValueMemory& changed) {
    const std::vector<at::Tensor> returned = returned_tensors(taped.op, stack);
    for (const auto& [output, id] : taped.outputs) {
      const int64_t bytes =
          output < returned.size()
              ? static_cast<int64_t>(returned[output].storage().nbytes())
              : -1;
      if (bytes != tape_.values()[id].bytes) {
        throw CheckpointError(remat::str(
            "[checkpoint_graph] ", operator_name(taped.op), " gave ", bytes,
            " bytes when it was run again, ", tape_.values()[id].bytes,
            " in forward. Operators must compute the same again; keep this "
            "one: policy::operators()."));
      }
      set(id, flat_memory(returned[output]));
    }
    for (const auto& [argument, id] : taped.writes) {
      set(id, changed.at(taped.tensors[argument].value));
    }
  }

  void set(ValueId id, at::Tensor memory) {
    values_[id] = std::move(memory);
    computed_.insert(id);
  }

  const OperatorTape& tape_;
  const std::unordered_set<ValueId> wanted_;
  std::unordered_map<ValueId, int64_t> reads_left_;
  std::unordered_set<ValueId> computed_;
  ValueMemory values_;
};

}  // namespace

std::vector<size_t> operators_for(const OperatorTape& tape,
                                  const std::vector<ValueId>& wanted,
                                  const std::function<bool(ValueId)>& is_held) {
  std::unordered_set<size_t> found;
  std::vector<ValueId> open = wanted;
  while (!open.empty()) {
    const ValueId id = open.back();
    open.pop_back();
    const size_t producer = tape.values()[id].producer;
    if (is_held(id) || producer == TapedValue::kNoProducer ||
        !found.insert(producer).second) {
      continue;
    }
    for (const TapedTensor& tensor : tape.operators()[producer].tensors) {
      if (!tensor.scratch) {
        open.push_back(tensor.value);
      }
    }
  }
  std::vector<size_t> operators(found.begin(), found.end());
  std::sort(operators.begin(), operators.end());
  return operators;
}

std::vector<ValueId> sources_of(const OperatorTape& tape,
                                const std::vector<size_t>& operators) {
  std::unordered_set<ValueId> known;
  std::vector<ValueId> sources;
  for (const size_t index : operators) {
    const TapedOperator& taped = tape.operators()[index];
    for (const TapedTensor& tensor : taped.tensors) {
      if (!tensor.scratch && known.insert(tensor.value).second) {
        sources.push_back(tensor.value);
      }
    }
    for (const auto& made : {taped.outputs, taped.writes}) {
      for (const auto& [place, id] : made) {
        known.insert(id);
      }
    }
  }
  return sources;
}

ValueMemory replay(const OperatorTape& tape,
                   const std::vector<size_t>& operators,
                   const std::vector<ValueId>& wanted, ValueMemory sources,
                   const ProcessSettings& settings) {
  const ProcessSettingsScope same_settings(settings);
  const OperatorScope unseen(nullptr);
  // As it was under the operators in forward: kernels may ask.
  const c10::AutoGradMode with_grad(true);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      c10::autocast_dispatch_keyset);
  Replay replay(tape, operators, wanted, std::move(sources));
  for (const size_t index : operators) {
    replay.run(tape.operators()[index]);
  }
  return replay.take_wanted();
}

}  // namespace remat::detail
