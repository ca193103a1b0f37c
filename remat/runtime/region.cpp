#include "remat/runtime/region.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "remat/base/error.h"
#include "remat/runtime/recomputation.h"
#include "remat/runtime/value_hash.h"

namespace remat::detail {
namespace {

// The region whose forward this thread is in.
thread_local Region* innermost_forward = nullptr;

std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> weak_storage(
    const at::Tensor& tensor) {
  if (!tensor.has_storage()) {
    return std::nullopt;
  }
  return tensor.storage().getWeakStorageImpl();
}

// Undefined and inference tensors have no version.
int64_t version_of(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.is_inference()
             ? 0
             : static_cast<int64_t>(tensor._version());
}

// The input as it is before the region changes it.
at::Tensor copy_of_input(const at::Tensor& input) {
  if (!input.defined()) {
    return input;
  }
  return input.detach().clone().requires_grad_(input.requires_grad());
}

}  // namespace

Region::Region(const CheckpointOptions& options,
               std::shared_ptr<RegionFunction> function,
               const std::vector<at::Tensor>& inputs)
    : options_(options),
      function_(std::move(function)),
      context_(recompute_context()) {
  inputs_.reserve(inputs.size());
  for (const at::Tensor& given : inputs) {
    const at::Tensor input =
        options_.clone_inputs_ ? copy_of_input(given) : given;
    if (input.defined() && input.is_leaf() && input.requires_grad()) {
      leaf_accumulators_.push_back(
          torch::autograd::impl::grad_accumulator(input));
    }
    inputs_.emplace_back(input, /*is_output=*/false);
    if (!options_.clone_inputs_) {
      input_versions_.emplace_back(input, version_of(input));
    }
  }
  if (options_.policy_.has_value()) {
    kept_.emplace(*options_.policy_, hook_depth());
  }
  if (options_.preserve_rng_state_) {
    random_state_.emplace(inputs);
  }
}

void Region::forward_begins() {
  std::vector<ReplayState> states;
  if (!options_.buffers_.empty()) {
    states.push_back(tensor_state(options_.buffers_)());
  }
  for (const SnapshotState& take : options_.states_) {
    states.push_back(take());
  }
  enclosing_ = std::exchange(innermost_forward, this);
  if (states.empty()) {
    return;
  }
  for (Region* region = this; region != nullptr; region = region->enclosing_) {
    region->states_.insert(region->states_.end(), states.begin(), states.end());
    region->buffers_.insert(region->buffers_.end(), options_.buffers_.begin(),
                            options_.buffers_.end());
  }
}

void Region::check_inputs() const {
  for (size_t i = 0; i < input_versions_.size(); ++i) {
    const auto& [input, version] = input_versions_[i];
    if (version_of(input) != version) {
      throw CheckpointError(remat::str(
          "[checkpoint] ", title(), " changed its input ", i, ", ",
          c10::toString(input.scalar_type()), input.sizes(),
          ", in place (version ", version, " before, ", version_of(input),
          " after), and could not be recomputed. Let it work on a copy: "
          "input.clone(), or set clone_inputs(true)."));
    }
  }
}

void Region::forward_ended() {
  forward_ended_ = true;
  innermost_forward = std::exchange(enclosing_, nullptr);
  for (const auto& [input, version] : std::exchange(input_versions_, {})) {
    if (version_of(input) != version) {
      inputs_.clear();
      inputs_dropped_ = true;
    }
  }
}

size_t Region::add_slot(const at::Tensor& tensor) {
  const OperatorScope unseen(nullptr);
  const std::lock_guard lock(mutex_);
  slots_.push_back(
      {.alive = true,
       .dtype = tensor.scalar_type(),
       .device = tensor.device(),
       .sizes = tensor.sizes().vec(),
       .hash = options_.determinism_check_ == DeterminismCheck::kValues
                   ? value_hash(tensor)
                   : std::nullopt,
       .storage = weak_storage(tensor),
       .version = version_of(tensor)});
  return slots_.size() - 1;
}

at::Tensor Region::unpack(size_t slot) {
  const OperatorScope unseen(nullptr);
  const std::lock_guard lock(mutex_);
  BackwardPass* const backward = current_backward_pass();
  if (backward == nullptr) {
    // Somebody looks into the graph; nothing tells how long to keep the rest.
    Values values;
    recompute(values);
    return hand_out(values.at(slot), slot);
  }
  const auto [entry, is_new] = values_by_backward_.try_emplace(backward->id());
  Values& values = entry->second;
  if (is_new) {
    backward->add_listener(shared_from_this());
  }
  if (slot < values.size()) {
    if (const at::Tensor value = hand_out(values[slot], slot);
        value.defined()) {
      return value;
    }
  }
  try {
    recompute(values);
  } catch (...) {
    // So that another backward, after what was wrong is mended, starts anew.
    values.clear();
    throw;
  }
  return hand_out(values.at(slot), slot);
}

void Region::recompute(Values& values) {
  if (inputs_dropped_) {
    throw CheckpointError(
        remat::str("[checkpoint] ", title(),
                   " changed an input in place, and cannot be recomputed"));
  }
  std::vector<at::Tensor> inputs;
  inputs.reserve(inputs_.size());
  for (const auto& input : inputs_) {
    inputs.push_back(input.unpack());
    if (options_.clone_inputs_ && inputs.back().defined()) {
      // Under grad mode no leaf, so that it may be changed in place.
      const c10::AutoGradMode with_grad(true);
      inputs.back() = inputs.back().clone();
    }
  }
  const auto recomputation = std::make_shared<Recomputation>(*this, values);
  recomputation->run(std::move(inputs));
}

at::Tensor Region::hand_out(Value& value, size_t slot) const {
  if (value.tensor.defined()) {
    if (!value.tensor.is_inference() &&
        static_cast<int64_t>(value.tensor._version()) != value.version) {
      throw CheckpointError(remat::str(
          "[checkpoint] ", title(), ": tensor ", slot, ", ",
          c10::toString(value.tensor.scalar_type()), value.tensor.sizes(),
          ", was changed in place after autograd saved it: version ",
          value.version, " then, ", value.tensor._version(),
          " now. Change a copy instead."));
    }
    at::Tensor tensor = std::exchange(value.tensor, at::Tensor());
    value.storage = weak_storage(tensor);
    if (value.storage.has_value()) {
      value.counter = tensor.unsafeGetTensorImpl()->version_counter();
      value.layout = TensorLayout::of(tensor);
    }
    return tensor;
  }
  if (!value.storage.has_value()) {
    return {};
  }
  // A function that unpacks twice still holds the first: no second run.
  auto storage = value.storage->lock();
  if (!storage) {
    return {};
  }
  return value.layout.in(c10::Storage(std::move(storage)), value.counter);
}

bool Region::is_buffer(const at::Tensor& tensor) const {
  return tensor.has_storage() &&
         std::any_of(buffers_.begin(), buffers_.end(),
                     [&tensor](const at::Tensor& buffer) {
                       return buffer.has_storage() &&
                              buffer.storage().unsafeGetStorageImpl() ==
                                  tensor.storage().unsafeGetStorageImpl();
                     });
}

void Region::release(size_t slot) {
  // Freed after the lock is: what a tensor's end sets off is not ours to know.
  std::vector<Value> freed;
  const std::lock_guard lock(mutex_);
  slots_[slot].alive = false;
  slots_[slot].storage.reset();
  for (auto& [id, values] : values_by_backward_) {
    if (slot < values.size()) {
      freed.push_back(std::exchange(values[slot], {}));
    }
  }
}

void Region::backward_ended(uint64_t backward_id) {
  Values freed;
  const std::lock_guard lock(mutex_);
  const auto entry = values_by_backward_.find(backward_id);
  if (entry != values_by_backward_.end()) {
    freed = std::move(entry->second);
    values_by_backward_.erase(entry);
  }
}

NoEnclosingRegion::NoEnclosingRegion()
    : outer_(std::exchange(innermost_forward, nullptr)) {}

NoEnclosingRegion::~NoEnclosingRegion() { innermost_forward = outer_; }

std::string Region::title() const {
  return options_.name_.empty()
             ? "a region"
             : remat::str("the region \"", options_.name_, "\"");
}

}  // namespace remat::detail
