#include "remat/runtime/checkpoint.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "remat/runtime/context_guard.h"
#include "remat/runtime/engine.h"
#include "remat/runtime/hook_stack.h"
#include "remat/runtime/kept_results.h"
#include "remat/runtime/operator_log.h"
#include "remat/runtime/region.h"
#include "remat/runtime/slot_hooks.h"

namespace remat {

CheckpointOptions& CheckpointOptions::preserve_rng_state(bool on) {
  preserve_rng_state_ = on;
  return *this;
}

CheckpointOptions& CheckpointOptions::determinism_check(
    DeterminismCheck check) {
  determinism_check_ = check;
  return *this;
}

CheckpointOptions& CheckpointOptions::generators(
    const std::vector<at::Generator>& generators) {
  states_.push_back(detail::generator_state(generators));
  return *this;
}

CheckpointOptions& CheckpointOptions::buffers(std::vector<at::Tensor> tensors) {
  buffers_.insert(buffers_.end(), tensors.begin(), tensors.end());
  return *this;
}

CheckpointOptions& CheckpointOptions::module_buffers(bool on) {
  module_buffers_ = on;
  return *this;
}

CheckpointOptions& CheckpointOptions::policy(Policy policy) {
  policy_ = std::move(policy);
  return *this;
}

CheckpointOptions& CheckpointOptions::clone_inputs(bool on) {
  clone_inputs_ = on;
  return *this;
}

CheckpointOptions& CheckpointOptions::on_recompute(std::function<void()> begin,
                                                   std::function<void()> end) {
  recompute_begin_ = std::move(begin);
  recompute_end_ = std::move(end);
  return *this;
}

CheckpointOptions& CheckpointOptions::early_stop(bool on) {
  early_stop_ = on;
  return *this;
}

CheckpointOptions& CheckpointOptions::seed(uint64_t seed) {
  seed_ = seed;
  return *this;
}

CheckpointOptions& CheckpointOptions::debug(bool on) {
  debug_ = on;
  return *this;
}

CheckpointOptions& CheckpointOptions::name(std::string name) {
  name_ = std::move(name);
  return *this;
}

namespace {

thread_local std::optional<bool> early_stop_of_scope;

}  // namespace

EarlyStopScope::EarlyStopScope(bool on)
    : outer_(std::exchange(early_stop_of_scope, on)) {}

EarlyStopScope::~EarlyStopScope() { early_stop_of_scope = outer_; }

namespace detail {
namespace {

// The seed of the region's SeedScope, if it opens one. Without generators to
// replay, remat's own layers still need to be.
std::optional<uint64_t> region_seed(const CheckpointOptions& options) {
  if (options.seed_.has_value() || options.preserve_rng_state_ ||
      recompute_context().seed.has_value()) {
    return options.seed_;
  }
  return next_layer_seed();
}

}  // namespace

bool regions_are_needed() {
  return c10::GradMode::is_enabled() && !c10::InferenceMode::is_enabled();
}

struct RegionScope::State {
  // In this order: the region takes the context as its function will see it,
  // and saves its inputs before its own hooks stand.
  State(CheckpointOptions options, bool may_stop,
        std::shared_ptr<RegionFunction> function,
        const std::vector<at::Tensor>& inputs) {
    {
      const OperatorScope unseen(nullptr);
      options.early_stop_ =
          may_stop && early_stop_of_scope.value_or(options.early_stop_);
      if (const auto seed = region_seed(options)) {
        seed_scope.emplace(*seed);
      }
      region = std::make_shared<Region>(options, std::move(function), inputs);
      hooks.emplace(std::make_shared<SlotHandler<Region>>(region));
    }
    if (KeptResults* const kept = region->kept()) {
      recorder.emplace(*kept);
    }
    OperatorInterceptor* interceptor =
        recorder.has_value() ? &*recorder : nullptr;
    if (options.debug_) {
      interceptor = &log.emplace(region->operators(), interceptor);
    }
    operators.emplace(interceptor);
    // Last: from here on the destructor ends the forward.
    const OperatorScope unseen(nullptr);
    region->forward_begins();
  }
  ~State() { region->forward_ended(); }

  std::optional<SeedScope> seed_scope;
  DepthGuard depth;
  std::shared_ptr<Region> region;
  std::optional<HookScope> hooks;
  std::optional<ResultRecorder> recorder;
  std::optional<OperatorLog> log;
  std::optional<ForwardOperatorScope> operators;
};

PlainScope::PlainScope(const CheckpointOptions& options) {
  if (options.seed_.has_value()) {
    seed_scope_.emplace(*options.seed_);
  }
}

RegionScope::RegionScope(const CheckpointOptions& options, bool may_stop,
                         std::shared_ptr<RegionFunction> function,
                         const std::vector<at::Tensor>& inputs) {
  install_engine();
  state_ =
      std::make_unique<State>(options, may_stop, std::move(function), inputs);
}

RegionScope::~RegionScope() = default;

void RegionScope::check_inputs() const { state_->region->check_inputs(); }

}  // namespace detail
}  // namespace remat
