#include "remat/train/evaluation.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/softmax.h>
#include <c10/core/GradMode.h>

#include <chrono>

#include "remat/base/error.h"

namespace remat::train {
namespace {

// Evaluation mode without gradients, until it goes.
class EvaluationScope {
 public:
  explicit EvaluationScope(nn::BigBirdClassifier& model)
      : model_(model), was_training_(model.is_training()) {
    model_.train(false);
  }
  ~EvaluationScope() { model_.train(was_training_); }
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  nn::BigBirdClassifier& model_;
  bool was_training_;
  c10::NoGradGuard no_grad_;
};

// Answers of NaN would be taken for the first class, silently.
void require_finite(const at::Tensor& logits) {
  if (!at::isfinite(logits).all().item<bool>()) {
    fail("model",
         "the model's outputs are not finite: its weights hold NaN or "
         "infinity, or values that overflow. Use another model, or train it "
         "again with a smaller --learning-rate.");
  }
}

}  // namespace

std::optional<Evaluation> evaluate(nn::BigBirdClassifier& model,
                                   const data::Dataset& dataset,
                                   int64_t batch_size, int64_t pad_id,
                                   const std::function<bool()>& stop) {
  const EvaluationScope scope(model);
  const auto start = std::chrono::steady_clock::now();
  Evaluation evaluation;
  evaluation.examples = static_cast<int64_t>(dataset.examples.size());
  std::vector<int64_t> labels, predictions;
  double loss_sum = 0;
  for (const auto& indices : data::batches_by_length(dataset, batch_size)) {
    if (stop()) {
      return std::nullopt;
    }
    const data::Batch batch = data::make_batch(dataset, indices, pad_id);
    const at::Tensor logits =
        model.forward({batch.input_ids, batch.attention_mask, {}});
    require_finite(logits);
    const at::Tensor loss = at::cross_entropy_loss(logits, batch.labels);
    loss_sum += loss.item<double>() * static_cast<double>(indices.size());
    const at::Tensor answers = logits.argmax(1);
    for (size_t i = 0; i < indices.size(); ++i) {
      labels.push_back(dataset.examples[indices[i]].label);
      predictions.push_back(answers[static_cast<int64_t>(i)].item<int64_t>());
    }
  }
  evaluation.loss = loss_sum / static_cast<double>(evaluation.examples);
  evaluation.metrics =
      classification_metrics(labels, predictions, model.config().num_labels());
  evaluation.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return evaluation;
}

std::vector<std::vector<double>> predict(nn::BigBirdClassifier& model,
                                         const data::Dataset& dataset,
                                         int64_t batch_size, int64_t pad_id) {
  const EvaluationScope scope(model);
  std::vector<std::vector<double>> probabilities(dataset.examples.size());
  for (const auto& indices : data::batches_by_length(dataset, batch_size)) {
    const data::Batch batch = data::make_batch(dataset, indices, pad_id);
    const at::Tensor logits =
        model.forward({batch.input_ids, batch.attention_mask, {}});
    require_finite(logits);
    const at::Tensor rows = at::softmax(logits, 1, at::kDouble).contiguous();
    const double* values = rows.data_ptr<double>();
    const int64_t classes = rows.size(1);
    for (size_t i = 0; i < indices.size(); ++i) {
      const double* row = values + static_cast<int64_t>(i) * classes;
      probabilities[indices[i]].assign(row, row + classes);
    }
  }
  return probabilities;
}

}  // namespace remat::train
