// BigBird: the encoder and its sequence-classification head, number for number
// as Hugging Face's BigBirdModel and BigBirdForSequenceClassification (4.40).
//
// Zaheer et al.: Big Bird: Transformers for Longer Sequences (NeurIPS 2020).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "remat/nn/bigbird_config.h"
#include "remat/plan/region_plan.h"
#include "remat/runtime/plan_executor.h"

namespace remat::nn {

// Which encoder layers are recomputed in backward.
struct LayerCheckpointing {
  bool enabled = false;
  // Layers 0, n, 2n, ... are recomputed: 1 = all, 2 = every second one.
  int64_t every_n_layers = 1;
};

struct BigBirdInput {
  at::Tensor input_ids;       // [batch, length], int64
  at::Tensor attention_mask;  // the same, 1 = real; undefined: all ones
  at::Tensor token_type_ids;  // the same; undefined: zeros
};

struct BigBirdOutput {
  at::Tensor last_hidden_state;  // [batch, length, hidden]
  at::Tensor pooled;             // [batch, hidden]; undefined without pooler
  // Embeddings after layer norm, then each layer's output, with inner padding
  // ([batch, length rounded up to the block, hidden]). Only if asked for.
  std::vector<at::Tensor> hidden_states;
};

// The model on one input, for a planner: from input_ids to logits.
struct BigBirdStages {
  at::Tensor input_ids;  // with inner padding
  // Embeddings, the two halves of each layer, head. They keep the model alive.
  std::vector<PlanStage> stages;
};

// Sequence classification. Owns the parameters; not thread-safe.
class BigBirdClassifier {
 public:
  // Fresh weights: normal(0, initializer_range) from ATen's generator, biases
  // 0, layer-norm weights 1, the padding row of the word embeddings 0.
  explicit BigBirdClassifier(const BigBirdConfig& config);
  ~BigBirdClassifier();
  BigBirdClassifier(BigBirdClassifier&&) noexcept;
  BigBirdClassifier& operator=(BigBirdClassifier&&) noexcept;

  // [batch, labels]. Throws UsageError for ids outside the vocabulary, lengths
  // beyond max_position_embeddings, shapes that differ.
  at::Tensor forward(const BigBirdInput& input);

  // The encoder (with pooler) alone, as BigBirdModel.
  BigBirdOutput encode(const BigBirdInput& input, bool with_hidden_states);

  void train(bool on);
  bool is_training() const;
  void to(at::ScalarType dtype);

  // Throws UsageError for every_n_layers < 1.
  void set_checkpointing(const LayerCheckpointing& checkpointing);

  // How the stages are run where gradients are on, instead of
  // set_checkpointing(); null: by that. Throws UsageError for a plan of another
  // number of stages.
  void set_plan(std::shared_ptr<const plan::RegionPlan> plan);

  // What forward(input) runs, with the random blocks and the dropout of this
  // call. Throws as forward() does.
  BigBirdStages stages(const BigBirdInput& input);

  // Parameters by Hugging Face's names ("bert.encoder.layer.0...."), in its
  // order. Each is a leaf that shares its memory with the model.
  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const;

  // The same without the names.
  std::vector<at::Tensor> parameters() const;

  const BigBirdConfig& config() const;

  // How often the attention and the feed-forward half of each encoder layer
  // have run, in this order, recomputations included: for tests and reports.
  const std::vector<int64_t>& half_runs() const;

 private:
  struct Impl;
  // Shared with what may be recomputed after this object is gone.
  std::shared_ptr<Impl> impl_;
};

}  // namespace remat::nn
