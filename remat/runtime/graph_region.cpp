#include "remat/runtime/graph_region.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "remat/base/error.h"
#include "remat/runtime/checkpoint.h"

namespace remat::detail {
namespace {

// The root of a set in a forest of parents.
size_t root_of(std::vector<size_t>& parents, size_t index) {
  while (parents[index] != index) {
    parents[index] = parents[parents[index]];
    index = parents[index];
  }
  return index;
}

}  // namespace

size_t GraphRegion::add_slot(const at::Tensor& tensor) {
  const OperatorScope unseen(nullptr);
  const std::lock_guard lock(mutex_);
  Slot slot;
  if (OperatorTape::can_hold(tensor)) {
    slot.tensor.layout = TensorLayout::of(tensor);
    slot.tensor.value = tape_.value_of(tensor);
    tape_.values()[slot.tensor.value].read = true;
  } else {
    // Without its graph, which owns this region.
    slot.is_opaque = true;
    slot.itself = tensor.detach();
    if (!tensor.is_inference()) {
      slot.version = slot.itself._version();
    }
  }
  slots_.push_back(std::move(slot));
  return slots_.size() - 1;
}

std::vector<ValueId> GraphRegion::saved_values() const {
  std::vector<ValueId> values;
  for (const Slot& slot : slots_) {
    if (slot.alive && !slot.is_opaque) {
      values.push_back(slot.tensor.value);
    }
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

void GraphRegion::forward_ended() {
  const OperatorScope unseen(nullptr);
  const std::lock_guard lock(mutex_);
  tape_.forward_ended();
  const std::vector<size_t> operators = operators_for(
      tape_, saved_values(), [this](ValueId id) { return is_held(id); });
  std::vector<bool> needed(tape_.operators().size(), false);
  for (const size_t index : operators) {
    needed[index] = true;
  }
  for (size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i]) {
      tape_.forget(i);
    }
  }
  find_parts(operators);
  pack_held();
  forward_ended_ = true;
}

// Operators are of one part where one reads, unheld, what another makes.
void GraphRegion::find_parts(const std::vector<size_t>& operators) {
  part_of_operator_.resize(tape_.operators().size());
  std::iota(part_of_operator_.begin(), part_of_operator_.end(), size_t{0});
  for (const size_t index : operators) {
    for (const TapedTensor& tensor : tape_.operators()[index].tensors) {
      const size_t producer = tape_.values()[tensor.value].producer;
      if (!tensor.scratch && !is_held(tensor.value) &&
          producer != TapedValue::kNoProducer) {
        part_of_operator_[root_of(part_of_operator_, index)] =
            root_of(part_of_operator_, producer);
      }
    }
  }
  std::unordered_map<size_t, std::vector<size_t>> operators_of_part;
  for (const size_t index : operators) {
    operators_of_part[root_of(part_of_operator_, index)].push_back(index);
  }
  for (size_t& part : part_of_operator_) {
    part = root_of(part_of_operator_, part);
  }
  for (const auto& [part, members] : operators_of_part) {
    parts_[part].sources = sources_of(tape_, members);
  }
}

// Counts who needs each held value, and gives it to the hooks around.
void GraphRegion::pack_held() {
  const OuterHooksScope outer(hook_depth_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const ValueId id = slot.tensor.value;
    if (!slot.alive) {
      continue;
    }
    if (slot.is_opaque) {
      if (slot.version.has_value() && *slot.version == slot.itself._version()) {
        slot.packed.emplace(std::exchange(slot.itself, {}),
                            /*is_output=*/false);
      }
    } else if (is_held(id)) {
      ++holders_[id];
    } else if (tape_.values()[id].can_be_computed()) {
      Part& part = parts_.at(part_of(id));
      ++part.slots_left;
      part.slots.push_back(i);
    }
  }
  for (const auto& [index, part] : parts_) {
    for (const ValueId id : part.sources) {
      ++holders_[id];
    }
  }
  // In the order of the forward: hooks around may count.
  std::vector<ValueId> needed;
  for (const auto& [id, count] : holders_) {
    needed.push_back(id);
  }
  std::sort(needed.begin(), needed.end());
  for (const ValueId id : needed) {
    if (tape_.values()[id].memory.defined()) {
      packed_.emplace(id, torch::autograd::SavedVariable(
                              tape_.values()[id].memory, /*is_output=*/false));
    }
  }
  for (TapedValue& value : tape_.values()) {
    value.memory = at::Tensor();
  }
}

size_t GraphRegion::part_of(ValueId id) const {
  return part_of_operator_[tape_.values()[id].producer];
}

void GraphRegion::drop_holder(
    ValueId id, std::vector<torch::autograd::SavedVariable>& freed) {
  const auto packed = packed_.find(id);
  if (--holders_[id] == 0 && packed != packed_.end()) {
    freed.push_back(std::move(packed->second));
    packed_.erase(packed);
  }
}

bool GraphRegion::is_held(ValueId id) const {
  return packed_.count(id) > 0 || tape_.values()[id].memory.defined();
}

at::Tensor GraphRegion::held(ValueId id) const {
  const auto packed = packed_.find(id);
  const at::Tensor memory = packed != packed_.end() ? packed->second.unpack()
                                                    : tape_.values()[id].memory;
  if (!memory.defined()) {
    throw CheckpointError(
        "[checkpoint_graph] a value that the recomputation starts from was "
        "changed in place where no operator of this thread was seen to do it, "
        "and is not there any more. Give the function a copy of it: "
        "tensor.clone().");
  }
  return memory;
}

// The held value for one of those who need it in this backward.
at::Tensor GraphRegion::take(ValueId id, bool first_time, Pass& pass) {
  const auto [entry, is_new] = pass.taken.try_emplace(id);
  if (is_new) {
    entry->second = {held(id), holders_.at(id)};
  }
  const at::Tensor memory =
      entry->second.memory.defined() ? entry->second.memory : held(id);
  if (first_time) {
    std::vector<at::Tensor> freed;
    need_no_more(id, pass, freed);
  }
  return memory;
}

void GraphRegion::need_no_more(ValueId id, Pass& pass,
                               std::vector<at::Tensor>& freed) {
  const auto entry = pass.taken.find(id);
  if (entry != pass.taken.end() && entry->second.needs_left > 0 &&
      --entry->second.needs_left == 0) {
    freed.push_back(std::exchange(entry->second.memory, at::Tensor()));
  }
}

ValueMemory GraphRegion::compute(
    const std::vector<ValueId>& wanted,
    const std::function<at::Tensor(ValueId)>& source) const {
  const std::vector<size_t> operators =
      operators_for(tape_, wanted, [this](ValueId id) { return is_held(id); });
  ValueMemory sources;
  // Before any operator runs: in it no region around could be recomputed.
  for (const ValueId id : sources_of(tape_, operators)) {
    sources.emplace(id, source(id));
  }
  return replay(tape_, operators, wanted, std::move(sources), settings_);
}

// Computes what slots of the part wait for.
void GraphRegion::compute_part(ValueId id, Pass& pass) {
  const Part& part = parts_.at(part_of(id));
  const bool first_time = pass.parts_computed.insert(part_of(id)).second;
  std::vector<ValueId> wanted;
  for (const size_t slot : part.slots) {
    if (slots_[slot].alive) {
      wanted.push_back(slots_[slot].tensor.value);
    }
  }
  ValueMemory memory = compute(
      wanted, [&](ValueId source) { return take(source, first_time, pass); });
  for (auto& [value, tensor] : memory) {
    Computed& computed = pass.values[value];
    computed = {};
    computed.memory = std::move(tensor);
  }
  for (const size_t slot : part.slots) {
    if (slots_[slot].alive) {
      ++pass.values.at(slots_[slot].tensor.value).slots_left;
      pass.served[slot] = false;
    }
  }
}

at::Tensor GraphRegion::opaque(const Slot& slot) {
  if (slot.packed.has_value()) {
    return slot.packed->unpack();
  }
  if (slot.version.has_value() && slot.itself._version() != *slot.version) {
    throw CheckpointError(remat::str(
        "[checkpoint_graph] a saved tensor, ",
        c10::toString(slot.itself.scalar_type()), slot.itself.sizes(),
        ", was changed in place: version ", *slot.version, " then, ",
        slot.itself._version(), " now. Change a copy instead."));
  }
  return slot.itself;
}

at::Tensor GraphRegion::unpack(size_t slot_index) {
  const OperatorScope unseen(nullptr);
  const std::lock_guard lock(mutex_);
  const Slot& slot = slots_[slot_index];
  if (slot.is_opaque) {
    return opaque(slot);
  }
  if (!tape_.holds()) {
    fail_usage("plan_graph",
               "the function runs a backward pass inside, which needs values "
               "that planning does not hold; give checkpoint_graph() a policy");
  }
  const ValueId id = slot.tensor.value;
  const bool is_direct = is_held(id) || !tape_.values()[id].can_be_computed();
  BackwardPass* const backward = current_backward_pass();
  if (!forward_ended_ || backward == nullptr) {
    // Nothing tells how long to keep more than this one.
    tape_.drop_changed();
    const auto source = [this](ValueId value) { return held(value); };
    return slot.tensor.layout.in(is_direct ? held(id)
                                           : compute({id}, source).at(id));
  }
  const auto [entry, is_new] = passes_.try_emplace(backward->id());
  if (is_new) {
    backward->add_listener(shared_from_this());
    entry->second.served.resize(slots_.size(), false);
  }
  if (is_direct) {
    const bool first_time = !entry->second.served[slot_index];
    entry->second.served[slot_index] = true;
    return slot.tensor.layout.in(take(id, first_time, entry->second));
  }
  at::Tensor value = serve(slot_index, entry->second);
  if (!value.defined()) {
    compute_part(id, entry->second);
    value = serve(slot_index, entry->second);
  }
  return value;
}

at::Tensor GraphRegion::serve(size_t slot_index, Pass& pass) {
  const Slot& slot = slots_[slot_index];
  const auto found = pass.values.find(slot.tensor.value);
  if (found == pass.values.end()) {
    return {};
  }
  Computed& computed = found->second;
  at::Tensor memory = computed.memory;
  if (!memory.defined()) {
    auto storage = computed.storage->lock();
    if (!storage) {
      return {};
    }
    memory = at::empty({0}, computed.options);
    memory.unsafeGetTensorImpl()->set_storage_keep_dtype(
        c10::Storage(std::move(storage)));
  } else if (!pass.served[slot_index]) {
    pass.served[slot_index] = true;
    let_go(computed);
  }
  return slot.tensor.layout.in(memory);
}

// One slot less waits for it.
void GraphRegion::let_go(Computed& computed) {
  if (--computed.slots_left == 0) {
    computed.storage = computed.memory.storage().getWeakStorageImpl();
    computed.options = computed.memory.options();
    computed.memory = at::Tensor();
  }
}

void GraphRegion::release(size_t slot_index) {
  // Freed after the lock is: what a tensor's end sets off is not ours to know.
  std::vector<at::Tensor> freed;
  std::vector<torch::autograd::SavedVariable> freed_holds;
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[slot_index];
  slot.alive = false;
  if (forward_ended_ && !slot.is_opaque) {
    const ValueId id = slot.tensor.value;
    if (is_held(id)) {
      for (auto& [backward, pass] : passes_) {
        if (!pass.served[slot_index]) {
          need_no_more(id, pass, freed);
        }
      }
      drop_holder(id, freed_holds);
    } else if (!tape_.values()[id].can_be_computed()) {
      // Changed unseen, and not there.
    } else if (Part& part = parts_.at(part_of(id)); --part.slots_left == 0) {
      for (const ValueId source : part.sources) {
        for (auto& [backward, pass] : passes_) {
          if (pass.parts_computed.count(part_of(id)) == 0) {
            need_no_more(source, pass, freed);
          }
        }
        drop_holder(source, freed_holds);
      }
    }
  }
  freed.push_back(std::exchange(slot.itself, at::Tensor()));
  if (slot.packed.has_value()) {
    freed_holds.push_back(std::move(*slot.packed));
    slot.packed.reset();
  }
  if (slot.is_opaque) {
    return;
  }
  for (auto& [id, pass] : passes_) {
    const auto found = pass.values.find(slot.tensor.value);
    if (found != pass.values.end() && found->second.memory.defined() &&
        !pass.served[slot_index]) {
      pass.served[slot_index] = true;
      freed.push_back(found->second.memory);
      let_go(found->second);
    }
  }
}

void GraphRegion::backward_ended(uint64_t backward_id) {
  Pass freed;
  const std::lock_guard lock(mutex_);
  const auto entry = passes_.find(backward_id);
  if (entry != passes_.end()) {
    freed = std::move(entry->second);
    passes_.erase(entry);
  }
}

}  // namespace remat::detail
