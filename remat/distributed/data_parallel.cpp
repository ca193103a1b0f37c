#include "remat/distributed/data_parallel.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "remat/base/error.h"
#include "remat/distributed/c10d_compat.h"
#include "remat/runtime/recompute_context.h"

namespace remat::distributed {
namespace {

using torch::autograd::variable_list;
using torch::autograd::utils::LambdaPostHook;

// A shared_ptr, or in newer libtorch one of its own kind.
using Accumulator = decltype(torch::autograd::impl::grad_accumulator(
    std::declval<const at::Tensor&>()));

constexpr std::string_view kOperation = "data_parallel";

std::string describe(const at::Tensor& tensor) {
  return remat::str(tensor.scalar_type(), tensor.sizes());
}

// Throws on every rank if any rank's parameters are not rank 0's; libtorch's
// own check throws only on that rank, for which the others would then wait.
void check_same_model(ProcessGroup& group,
                      const std::vector<at::Tensor>& parameters) {
  std::string difference;
  try {
    c10d::verify_params_across_processes(group.state()->group, parameters, {});
  } catch (const c10::Error& error) {
    difference = error.what_without_backtrace();
  }
  at::Tensor different = at::full({1}, difference.empty() ? 0 : 1, at::kLong);
  group.all_reduce_sum(different);
  if (different.item<int64_t>() == 0) {
    return;
  }
  fail(kOperation, "the model of rank ", group.rank(), ", ", parameters.size(),
       " parameters, ",
       difference.empty() ? "is not that of another rank, which names the "
                            "difference"
                          : "is not that of rank 0: " + difference,
       "; build the same model on every rank");
}

}  // namespace

struct DataParallel::State : std::enable_shared_from_this<DataParallel::State> {
  State(ProcessGroup process_group, std::vector<at::Tensor> trainable,
        const DataParallelOptions& chosen)
      : group(std::move(process_group)),
        options(chosen),
        parameters(std::move(trainable)),
        awaited(parameters.size(), 0),
        added_up(parameters.size(), 0),
        to_reduce(parameters.size(), 0) {
    if (!options.static_graph) {
      make_reducer();
    }
  }

  ProcessGroup group;
  DataParallelOptions options;
  std::vector<at::Tensor> parameters;

  // A static graph's is made for the first step that is reduced: what it saw
  // before, forwards alone or gradients inside NoSync, it would count.
  std::shared_ptr<c10d::Reducer> reducer;
  // The reducer asks for one, without looking whether it is there.
  std::shared_ptr<c10d::Logger> logger;
  // A static graph's: no step was reduced yet.
  bool first_step = true;

  // A forward was prepared, and no backward since.
  bool forward_prepared = false;

  int no_sync_scopes = 0;
  // The last forward was inside NoSync: its backward may come after the scope.
  bool last_was_no_sync = false;

  // Of each parameter: prepared for, and no gradient since.
  std::vector<char> awaited;
  // Of each parameter: got a gradient inside NoSync, since the last step that
  // was reduced, or before it.
  std::vector<char> added_up;
  std::vector<char> to_reduce;
  std::vector<std::pair<Accumulator, uintptr_t>> hooks;

  bool reduces() const {
    return at::GradMode::is_enabled() && !is_recomputing() &&
           no_sync_scopes == 0;
  }

  void make_reducer() {
    // As Python's wrapper: one bucket, until the first step has shown in which
    // order gradients arrive; where that changes, buckets from the start.
    const bool rebuilt_later =
        options.static_graph || !options.find_unused_parameters;
    const auto bytes = static_cast<size_t>(options.bucket_bytes);
    const auto first_bytes = static_cast<size_t>(options.first_bucket_bytes);
    auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
        parameters,
        rebuilt_later ? std::vector<size_t>{std::numeric_limits<int64_t>::max()}
                      : std::vector<size_t>{first_bytes, bytes});
    std::reverse(buckets.begin(), buckets.end());
    std::reverse(limits.begin(), limits.end());
    reducer = compat::make_reducer<c10d::Reducer>(
        {parameters, buckets, limits, group.state()->group,
         options.bucket_bytes, options.first_bucket_bytes,
         options.find_unused_parameters});
    logger = std::make_shared<c10d::Logger>(reducer);
    reducer->set_logger(logger);
    if (options.static_graph) {
      reducer->set_static_graph();
    }
    first_step = true;
  }

  void watch_gradients() {
    for (size_t i = 0; i < parameters.size(); ++i) {
      auto accumulator = torch::autograd::impl::grad_accumulator(parameters[i]);
      const uintptr_t key =
          accumulator->add_post_hook(std::make_unique<LambdaPostHook>(
              [this, i](const variable_list& outputs, const variable_list&) {
                arrived(i);
                return outputs;
              }));
      hooks.emplace_back(std::move(accumulator), key);
    }
  }

  void arrived(size_t i) {
    if (no_sync_scopes > 0 || last_was_no_sync) {
      added_up[i] = 1;
      return;
    }
    if (awaited[i] == 0) {
      fail(kOperation, "a gradient of parameter ", i, ", ",
           describe(parameters[i]),
           ", arrived that no reduction takes: it would stay rank ",
           group.rank(),
           "'s own. Call prepare_for_forward and prepare_for_backward around "
           "each forward, run one backward pass over the sum of the losses, or "
           "let gradients add up inside NoSync");
    }
    // With static_graph the reducer itself counts how many arrive.
    if (!options.static_graph) {
      awaited[i] = 0;
    }
  }

  // A step of which only some gradients came is not reduced yet, on any rank;
  // where unused ones are looked for, it is but for those of NoSync.
  void check_last_step() const {
    const bool lost_alone = options.find_unused_parameters;
    if (options.static_graph || (lost_alone && compat::kReducerSeesNoSync) ||
        std::all_of(awaited.begin(), awaited.end(),
                    [](char waits) { return waits != 0; })) {
      return;
    }
    std::string missing;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (awaited[i] != 0 && (!lost_alone || to_reduce[i] != 0)) {
        missing += remat::str(missing.empty() ? "" : ", ", i, " (",
                              describe(parameters[i]), ")");
      }
    }
    if (!missing.empty() && lost_alone) {
      fail(kOperation, "the last step gave no gradient to parameters ", missing,
           ", and NoSync had: this libtorch does not reduce those. Use the "
           "parameters in the step outside of NoSync too, or libtorch 2.1");
    }
    if (!missing.empty()) {
      fail(kOperation,
           "the last step is not reduced: it gave no gradient to parameters ",
           missing,
           ". Set find_unused_parameters, use them in the loss, or construct "
           "DataParallel when they do not require gradients");
    }
  }

  // The all-reduce of a static graph's first step follows its backward pass.
  void reduce_after_backward_of(const std::vector<at::Tensor>& outputs) {
    auto queued = std::make_shared<std::atomic<bool>>(false);
    bool any = false;
    for (const at::Tensor& output : outputs) {
      if (!output.defined() || !output.requires_grad()) {
        continue;
      }
      any = true;
      output.register_hook([queued,
                            state = shared_from_this()](const at::Tensor&) {
        if (!queued->exchange(true)) {
          torch::autograd::Engine::get_default_engine().queue_callback([state] {
            state->first_step = false;
            state->reducer->delay_all_reduce();
          });
        }
      });
    }
    if (!any) {
      fail_usage(kOperation,
                 "prepare_for_backward got no output that requires gradients; "
                 "with static_graph it needs the outputs or the loss");
    }
  }

  ~State() {
    for (const auto& [accumulator, key] : hooks) {
      accumulator->del_post_hook(key);
    }
  }
};

DataParallel::DataParallel(ProcessGroup group,
                           std::vector<at::Tensor> parameters,
                           std::vector<at::Tensor> buffers,
                           const DataParallelOptions& options) {
  if (options.bucket_bytes < 1 || options.first_bucket_bytes < 1) {
    fail_usage(kOperation, "bucket_bytes is ", options.bucket_bytes,
               " and first_bucket_bytes ", options.first_bucket_bytes,
               "; both must be 1 or more");
  }
  std::vector<at::Tensor> trainable;
  std::copy_if(
      parameters.begin(), parameters.end(), std::back_inserter(trainable),
      [](const at::Tensor& parameter) { return parameter.requires_grad(); });
  for (const at::Tensor& parameter : trainable) {
    if (!parameter.is_leaf()) {
      fail_usage(kOperation, "parameter ", describe(parameter),
                 " is the result of an operation; it must be a leaf");
    }
  }
  if (trainable.empty()) {
    fail_usage(kOperation, "none of the ", parameters.size(),
               " parameters requires gradients; there is nothing to reduce");
  }
  std::vector<at::Tensor> all = std::move(parameters);
  all.insert(all.end(), buffers.begin(), buffers.end());
  check_same_model(group, all);
  group.broadcast(all);
  state_ =
      std::make_shared<State>(std::move(group), std::move(trainable), options);
  if (options.refuse_unreduced) {
    state_->watch_gradients();
  }
}

DataParallel::~DataParallel() = default;

void DataParallel::prepare_for_forward() {
  if (!state_->reduces()) {
    return;
  }
  state_->check_last_step();
  if (state_->options.static_graph && state_->first_step) {
    state_->make_reducer();
  }
  state_->forward_prepared = true;
  state_->reducer->prepare_for_forward();
  state_->reducer->rebuild_buckets();
}

void DataParallel::prepare_for_backward(
    const std::vector<at::Tensor>& outputs) {
  if (state_->no_sync_scopes > 0) {
    state_->last_was_no_sync = true;
  }
  if (!state_->reduces()) {
    return;
  }
  if (!state_->forward_prepared) {
    fail_usage(kOperation,
               "prepare_for_backward without prepare_for_forward; call that "
               "before the forward");
  }
  state_->forward_prepared = false;
  state_->last_was_no_sync = false;
  state_->to_reduce = state_->added_up;
  std::fill(state_->added_up.begin(), state_->added_up.end(), 0);
  std::fill(state_->awaited.begin(), state_->awaited.end(), 1);
  const DataParallelOptions& options = state_->options;
  state_->reducer->prepare_for_backward(options.find_unused_parameters &&
                                                !options.static_graph
                                            ? outputs
                                            : std::vector<at::Tensor>());
  if (options.static_graph && state_->first_step) {
    state_->reduce_after_backward_of(outputs);
  }
}

const std::vector<at::Tensor>& DataParallel::parameters() const {
  return state_->parameters;
}

NoSync::NoSync(DataParallel& parallel) : state_(parallel.state_) {
  state_->check_last_step();
  ++state_->no_sync_scopes;
}

NoSync::~NoSync() { --state_->no_sync_scopes; }

}  // namespace remat::distributed
