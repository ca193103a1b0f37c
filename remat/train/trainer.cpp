#include "remat/train/trainer.h"

#include <ATen/Context.h>
#include <ATen/ops/cross_entropy_loss.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/base/log.h"
#include "remat/base/philox.h"
#include "remat/memory/ledger.h"
#include "remat/train/gradients.h"
#include "remat/train/learning_rate_schedule.h"
#include "remat/train/optimizer.h"

namespace remat::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t steps_per_epoch(const TrainOptions& options, int64_t examples) {
  return divide_up(divide_up(examples, options.per_device_train_batch_size),
                   options.gradient_accumulation_steps);
}

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Whose memory the parameters' is, and while it lives that of gradients that
// backward makes for them: for the table of an error.
class NamedOwners {
 public:
  explicit NamedOwners(std::vector<at::Tensor> parameters)
      : parameters_(std::move(parameters)) {
    for (const at::Tensor& parameter : parameters_) {
      set_memory_owner(parameter.storage().data(),
                       memory_owner(MemoryTag::kWeights));
      hooks_.push_back(parameter.register_hook([](const at::Tensor& gradient) {
        if (gradient.has_storage()) {
          set_memory_owner(gradient.storage().data(),
                           memory_owner(MemoryTag::kGradients));
        }
      }));
    }
  }
  ~NamedOwners() {
    for (size_t i = 0; i < hooks_.size(); ++i) {
      parameters_[i].remove_hook(hooks_[i]);
    }
  }
  NamedOwners(const NamedOwners&) = delete;
  NamedOwners& operator=(const NamedOwners&) = delete;

 private:
  const std::vector<at::Tensor> parameters_;
  std::vector<unsigned> hooks_;
};

class Trainer {
 public:
  Trainer(nn::BigBirdClassifier& model, const data::Dataset& train_set,
          const data::Dataset* validation_set, int64_t pad_id,
          const TrainOptions& options, TrainObserver& observer)
      : model_(model),
        train_set_(train_set),
        validation_set_(validation_set),
        pad_id_(pad_id),
        options_(options),
        observer_(observer),
        parameters_(model.parameters()),
        optimizer_(parameters_, options),
        total_steps_(count_steps(options, examples())),
        schedule_(options.learning_rate, options.warmup_ratio, total_steps_),
        eval_batch_size_(options.per_device_eval_batch_size) {}

  TrainResult run() {
    model_.train(true);
    model_.set_checkpointing(options_.checkpointing);
    if (!options_.memory_bytes.has_value()) {
      return run_steps();
    }
    const NamedOwners owners(parameters_);
    plan_memory();
    try {
      return run_steps();
    } catch (const BudgetError& error) {
      const int64_t enough =
          ((*options_.memory_bytes + error.missing_bytes()) >> 20) + 1;
      throw BudgetError(
          str("[train] step ", result_.steps + 1, " needs more than --memory ",
              format_bytes(*options_.memory_bytes), "; here --memory ", enough,
              "MiB would do.\n", error.what()),
          error.missing_bytes());
    }
  }

 private:
  using Group = std::vector<std::vector<int64_t>>;

  TrainResult run_steps() {
    for (int64_t epoch = 0;
         result_.steps < total_steps_ && !result_.interrupted; ++epoch) {
      run_epoch(epoch);
    }
    clear_gradients(parameters_);
    model_.set_plan(nullptr);
    result_.median_step_seconds = median(step_seconds_);
    return std::move(result_);
  }

  int64_t examples() const {
    return static_cast<int64_t>(train_set_.examples.size());
  }

  static int64_t longest_of(const data::Dataset& dataset) {
    size_t longest = 1;
    for (const data::Example& example : dataset.examples) {
      longest = std::max(longest, example.ids.size());
    }
    return static_cast<int64_t>(longest);
  }

  // Any batch may have the longest text in it.
  void plan_memory() {
    const int64_t texts =
        std::min(options_.per_device_train_batch_size, examples());
    const int64_t length = longest_of(train_set_);
    std::optional<ProfileCache> cache;
    if (!options_.profile_cache.empty()) {
      cache.emplace(options_.profile_cache);
    }
    planner_.emplace(model_, *options_.memory_bytes,
                     options_.gradient_accumulation_steps == 1,
                     std::move(cache));
    BatchPlan plan = planner_->plan(texts, length);
    plan.memory.passes = options_.gradient_accumulation_steps;
    plan.memory.update_seconds = measure_update_seconds(parameters_, options_);
    observer_.on_plan(plan);
    limit_evaluation(texts * length);
  }

  // Without gradients a batch of as many tokens needs less.
  void limit_evaluation(int64_t tokens) {
    if (validation_set_ == nullptr) {
      return;
    }
    const int64_t most =
        std::max<int64_t>(tokens / longest_of(*validation_set_), 1);
    if (most < eval_batch_size_) {
      eval_batch_size_ = most;
      say("train", str("evaluation takes ", most, " texts at once instead of ",
                       options_.per_device_eval_batch_size,
                       ", to stay within --memory"));
    }
  }

  void run_epoch(int64_t epoch) {
    const Group batches =
        data::epoch_batches(examples(), options_.per_device_train_batch_size,
                            static_cast<uint64_t>(options_.seed), epoch);
    const auto count = static_cast<int64_t>(batches.size());
    const int64_t steps = steps_per_epoch(options_, examples());
    for (int64_t i = 0; i < steps && result_.steps < total_steps_; ++i) {
      const int64_t from = i * options_.gradient_accumulation_steps;
      const int64_t to =
          std::min(from + options_.gradient_accumulation_steps, count);
      StepReport report =
          run_step({batches.begin() + from, batches.begin() + to});
      report.epoch = static_cast<double>(epoch) +
                     static_cast<double>(i + 1) / static_cast<double>(steps);
      observer_.on_step(report);
      if (observer_.stop_requested()) {
        result_.interrupted = true;
        return;
      }
      if (is_evaluation_due(i + 1 == steps)) {
        run_evaluation();
      }
      if (result_.interrupted) {
        return;
      }
    }
  }

  StepReport run_step(const Group& group) {
    const auto start = Clock::now();
    StepReport report;
    report.step = result_.steps + 1;
    report.total_steps = total_steps_;
    report.learning_rate = schedule_.at(result_.steps);
    size_t texts = 0;
    for (const auto& indices : group) {
      texts += indices.size();
    }
    for (const auto& indices : group) {
      const double share =
          static_cast<double>(indices.size()) / static_cast<double>(texts);
      const data::Batch batch = data::make_batch(train_set_, indices, pad_id_);
      if (planner_.has_value()) {
        planner_->apply(batch.input_ids.size(0), batch.input_ids.size(1));
      }
      const at::Tensor loss = loss_of(batch);
      const double value = loss.item<double>();
      require_finite(report.step, "the loss", value);
      {
        const MemoryScope backward(MemoryTag::kBackward);
        // A factor of 1 would round nothing, but cost two operations.
        (group.size() == 1 ? loss : loss.mul(share)).backward();
      }
      report.loss += value * share;
      report.tokens += batch.tokens;
    }
    report.grad_norm = gradient_norm(parameters_);
    require_finite(report.step, "the norm of the gradients", report.grad_norm);
    if (options_.max_grad_norm > 0) {
      clip_gradients(parameters_, report.grad_norm, options_.max_grad_norm);
    }
    {
      const MemoryScope moments(MemoryTag::kOptimizer);
      optimizer_.step(report.learning_rate);
    }
    clear_gradients(parameters_);
    report.seconds = seconds_since(start);
    ++result_.steps;
    result_.losses.push_back(report.loss);
    step_seconds_.push_back(report.seconds);
    return report;
  }

  at::Tensor loss_of(const data::Batch& batch) {
    const MemoryScope activations(MemoryTag::kActivations);
    const at::Tensor logits =
        model_.forward({batch.input_ids, batch.attention_mask, {}});
    return at::cross_entropy_loss(logits, batch.labels);
  }

  void require_finite(int64_t step, const char* what, double value) const {
    if (!std::isfinite(value)) {
      fail("train", "step ", step, ": ", what, " is ", value,
           "; training cannot go on. Try a smaller --learning-rate (it is ",
           options_.learning_rate,
           "), a longer --warmup-ratio or a smaller "
           "--max-grad-norm.");
    }
  }

  bool is_evaluation_due(bool end_of_epoch) const {
    if (validation_set_ == nullptr) {
      return false;
    }
    if (result_.steps == total_steps_) {
      return true;
    }
    return options_.eval_steps.has_value()
               ? result_.steps % *options_.eval_steps == 0
               : end_of_epoch;
  }

  void run_evaluation() {
    auto evaluation =
        evaluate(model_, *validation_set_, eval_batch_size_, pad_id_,
                 [this] { return observer_.stop_requested(); });
    if (!evaluation.has_value()) {
      result_.interrupted = true;
      return;
    }
    require_finite(result_.steps, "the loss of the evaluation",
                   evaluation->loss);
    EvaluationReport report{result_.steps, std::move(*evaluation), false};
    report.best = !result_.best.has_value() ||
                  is_better(report.evaluation, result_.best->evaluation);
    if (report.best) {
      result_.best = report;
    }
    observer_.on_evaluation(report);
  }

  static bool is_better(const Evaluation& a, const Evaluation& b) {
    return a.metrics.accuracy > b.metrics.accuracy ||
           (a.metrics.accuracy == b.metrics.accuracy && a.loss < b.loss);
  }

  nn::BigBirdClassifier& model_;
  const data::Dataset& train_set_;
  const data::Dataset* validation_set_;
  int64_t pad_id_;
  const TrainOptions& options_;
  TrainObserver& observer_;
  std::vector<at::Tensor> parameters_;
  Optimizer optimizer_;
  int64_t total_steps_;
  LearningRateSchedule schedule_;
  int64_t eval_batch_size_;
  std::optional<MemoryPlanner> planner_;
  TrainResult result_;
  std::vector<double> step_seconds_;
};

}  // namespace

int64_t count_steps(const TrainOptions& options, int64_t examples) {
  if (options.max_steps.has_value()) {
    return *options.max_steps;
  }
  return static_cast<int64_t>(
      std::ceil(static_cast<double>(steps_per_epoch(options, examples)) *
                options.num_train_epochs));
}

TrainResult train(nn::BigBirdClassifier& model, const data::Dataset& train_set,
                  const data::Dataset* validation_set, int64_t pad_id,
                  const TrainOptions& options, TrainObserver& observer) {
  check(options);
  // Another stream than that of fresh weights, which begins with the seed.
  at::manual_seed(derive_seed(static_cast<uint64_t>(options.seed), 1));
  return Trainer(model, train_set, validation_set, pad_id, options, observer)
      .run();
}

}  // namespace remat::train
