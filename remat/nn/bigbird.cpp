#include "remat/nn/bigbird.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "remat/base/error.h"
#include "remat/base/philox.h"
#include "remat/nn/bigbird_embeddings.h"
#include "remat/nn/bigbird_input.h"
#include "remat/nn/bigbird_layer.h"
#include "remat/nn/block_layouts.h"
#include "remat/runtime/checkpoint.h"
#include "remat/runtime/dropout.h"

namespace remat::nn {
namespace {

// Where the model drops outside of its layers, as children of the forward's
// seed; layer i is child i + kFirstLayer.
enum DropoutSite : uint64_t {
  kEmbeddings = 0,
  kHeadInput = 1,
  kHeadMiddle = 2,
  kFirstLayer = 16,
};

struct EncoderOutput {
  at::Tensor last;  // with inner padding
  int64_t length;   // without
  std::vector<at::Tensor> hidden_states;
};

}  // namespace

struct BigBirdClassifier::Impl : std::enable_shared_from_this<Impl> {
  explicit Impl(const BigBirdConfig& given)
      : config(given),
        init{given.initializer_range},
        embeddings(config, init),
        layouts(config),
        half_runs(std::make_shared<std::vector<int64_t>>(
            static_cast<size_t>(2 * given.num_hidden_layers), 0)) {
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
      layers.push_back(std::make_shared<const BigBirdLayer>(config, init));
    }
    pooler = Linear(init, config.hidden_size, config.hidden_size);
    head_dense = Linear(init, config.hidden_size, config.hidden_size);
    head_out = Linear(init, config.hidden_size, config.num_labels());
  }

  double head_dropout() const {
    return config.classifier_dropout < 0 ? config.hidden_dropout_prob
                                         : config.classifier_dropout;
  }

  // One draw a forward, whatever is checkpointed, so that the state of the
  // generator and all masks are those of the plain run.
  uint64_t draw_seed() const {
    const bool drops = config.hidden_dropout_prob > 0 ||
                       config.attention_probs_dropout_prob > 0 ||
                       head_dropout() > 0;
    return training && drops ? next_layer_seed() : 0;
  }

  double in_training(double dropout) const { return training ? dropout : 0; }

  LayerContext layer_context(size_t layer, const PreparedInput& input,
                             const AttentionBatch& batch, uint64_t seed) {
    LayerContext context;
    context.batch = batch;
    context.layout =
        batch.type == AttentionType::kOriginalFull
            ? layouts.dense(input.input_ids.size(1))
            : layouts.sparse(static_cast<int64_t>(layer),
                             input.input_ids.size(1) / config.block_size,
                             training);
    context.hidden_dropout = in_training(config.hidden_dropout_prob);
    context.seed = derive_seed(seed, kFirstLayer + layer);
    return context;
  }

  at::Tensor run_layer(size_t index, const at::Tensor& hidden,
                       LayerContext context) const {
    const uint64_t seed = context.seed;
    // Holds what it uses: the recomputation may outlive this model.
    const auto run = [layer = layers[index], runs = half_runs, index,
                      context = std::move(context)](const at::Tensor& x) {
      ++(*runs)[2 * index];
      const at::Tensor middle = layer->attention(x, context);
      ++(*runs)[2 * index + 1];
      return layer->feed_forward(middle, context);
    };
    if (!checkpointing.enabled ||
        static_cast<int64_t>(index) % checkpointing.every_n_layers != 0) {
      return run(hidden);
    }
    // With its seed given, neither layer nor region draws from ATen's
    // generators.
    const auto options =
        CheckpointOptions().preserve_rng_state(false).seed(seed).name(
            str("layer ", index));
    return checkpoint(options, run, hidden);
  }

  AttentionBatch attention_batch(const PreparedInput& input) const {
    return make_attention_batch(
        input.type, input.attention_mask, embeddings.words.scalar_type(),
        in_training(config.attention_probs_dropout_prob));
  }

  at::Tensor embed(const at::Tensor& input_ids,
                   const at::Tensor& token_type_ids, double dropout,
                   uint64_t seed) const {
    return embeddings.forward(input_ids, token_type_ids, dropout,
                              derive_seed(seed, kEmbeddings));
  }

  EncoderOutput encode(const BigBirdInput& given, uint64_t seed,
                       bool with_hidden_states) {
    const PreparedInput input = prepare_bigbird_input(config, given);
    const AttentionBatch batch = attention_batch(input);
    EncoderOutput output;
    output.length = input.length;
    at::Tensor hidden = embed(input.input_ids, input.token_type_ids,
                              in_training(config.hidden_dropout_prob), seed);
    for (size_t i = 0; i < layers.size(); ++i) {
      if (with_hidden_states) {
        output.hidden_states.push_back(hidden);
      }
      hidden = run_layer(i, hidden, layer_context(i, input, batch, seed));
    }
    if (with_hidden_states) {
      output.hidden_states.push_back(hidden);
    }
    output.last = hidden;
    return output;
  }

  BigBirdStages stages(const BigBirdInput& given, uint64_t seed) {
    const PreparedInput input = prepare_bigbird_input(config, given);
    const AttentionBatch batch = attention_batch(input);
    BigBirdStages result{.input_ids = input.input_ids, .stages = {}};
    const auto add = [&](std::string name, auto forward) {
      result.stages.push_back(
          {.forward = std::move(forward), .name = std::move(name)});
    };
    // Holds what it uses: the recomputation may outlive this model.
    const std::shared_ptr<const Impl> self = shared_from_this();
    add("embeddings", [self, types = input.token_type_ids, seed,
                       dropout = in_training(config.hidden_dropout_prob)](
                          const at::Tensor& ids) {
      return self->embed(ids, types, dropout, seed);
    });
    for (size_t i = 0; i < layers.size(); ++i) {
      // Feed-forward takes the more bytes, attention the more time: a plan
      // that may part them recomputes less.
      const LayerContext context = layer_context(i, input, batch, seed);
      add(str("layer ", i, " attention"), [self, i, context](const auto& x) {
        ++(*self->half_runs)[2 * i];
        return self->layers[i]->attention(x, context);
      });
      add(str("layer ", i, " feed-forward"), [self, i, context](const auto& x) {
        ++(*self->half_runs)[2 * i + 1];
        return self->layers[i]->feed_forward(x, context);
      });
    }
    add("head",
        [self, seed, dropout = in_training(head_dropout())](
            const at::Tensor& x) { return self->classify(x, dropout, seed); });
    return result;
  }

  at::Tensor classify(const at::Tensor& hidden, double dropout,
                      uint64_t seed) const {
    at::Tensor x = stateless_dropout(hidden.select(1, 0), dropout,
                                     derive_seed(seed, kHeadInput));
    x = activate(config.hidden_act, head_dense(x));
    return head_out(
        stateless_dropout(x, dropout, derive_seed(seed, kHeadMiddle)));
  }

  NamedParameters named_parameters() const {
    NamedParameters parameters;
    embeddings.add_to(parameters, "bert.embeddings");
    for (size_t i = 0; i < layers.size(); ++i) {
      layers[i]->add_to(parameters, str("bert.encoder.layer.", i));
    }
    pooler.add_to(parameters, "bert.pooler");
    head_dense.add_to(parameters, "classifier.dense");
    head_out.add_to(parameters, "classifier.out_proj");
    return parameters;
  }

  const BigBirdConfig config;
  const WeightInit init;
  BigBirdEmbeddings embeddings;
  std::vector<std::shared_ptr<const BigBirdLayer>> layers;
  Linear pooler, head_dense, head_out;
  BlockLayouts layouts;
  LayerCheckpointing checkpointing;
  std::shared_ptr<const plan::RegionPlan> plan;
  bool training = true;
  std::shared_ptr<std::vector<int64_t>> half_runs;
};

BigBirdClassifier::BigBirdClassifier(const BigBirdConfig& config) {
  check_bigbird_config(config, "BigBirdConfig");
  impl_ = std::make_shared<Impl>(config);
}

BigBirdClassifier::~BigBirdClassifier() = default;
BigBirdClassifier::BigBirdClassifier(BigBirdClassifier&&) noexcept = default;
BigBirdClassifier& BigBirdClassifier::operator=(BigBirdClassifier&&) noexcept =
    default;

at::Tensor BigBirdClassifier::forward(const BigBirdInput& input) {
  const uint64_t seed = impl_->draw_seed();
  if (impl_->plan != nullptr && c10::GradMode::is_enabled()) {
    BigBirdStages run = impl_->stages(input, seed);
    // With their seed given, neither layers nor regions draw from ATen's
    // generators.
    return run_plan(impl_->plan, std::move(run.stages),
                    CheckpointOptions().preserve_rng_state(false).seed(seed),
                    run.input_ids);
  }
  return impl_->classify(impl_->encode(input, seed, false).last,
                         impl_->in_training(impl_->head_dropout()), seed);
}

BigBirdStages BigBirdClassifier::stages(const BigBirdInput& input) {
  return impl_->stages(input, impl_->draw_seed());
}

BigBirdOutput BigBirdClassifier::encode(const BigBirdInput& input,
                                        bool with_hidden_states) {
  EncoderOutput encoded =
      impl_->encode(input, impl_->draw_seed(), with_hidden_states);
  BigBirdOutput output;
  output.last_hidden_state = encoded.last.slice(1, 0, encoded.length);
  output.pooled = at::tanh(impl_->pooler(encoded.last.select(1, 0)));
  output.hidden_states = std::move(encoded.hidden_states);
  return output;
}

void BigBirdClassifier::train(bool on) { impl_->training = on; }

bool BigBirdClassifier::is_training() const { return impl_->training; }

void BigBirdClassifier::to(at::ScalarType dtype) {
  if (dtype != at::kFloat && dtype != at::kDouble && dtype != at::kHalf &&
      dtype != at::kBFloat16) {
    fail_usage("bigbird", "cannot convert the weights to ",
               c10::toString(dtype), "; give float, double, half or bfloat16");
  }
  for (const auto& [name, parameter] : named_parameters()) {
    at::Tensor gradient = parameter.grad();
    parameter.mutable_grad() = at::Tensor();
    parameter.set_data(parameter.detach().to(dtype));
    if (gradient.defined()) {
      parameter.mutable_grad() = gradient.to(dtype);
    }
  }
}

void BigBirdClassifier::set_checkpointing(
    const LayerCheckpointing& checkpointing) {
  if (checkpointing.every_n_layers < 1) {
    fail_usage("bigbird", "every_n_layers is ", checkpointing.every_n_layers,
               "; it must be at least 1 (1 recomputes each layer)");
  }
  impl_->checkpointing = checkpointing;
}

void BigBirdClassifier::set_plan(std::shared_ptr<const plan::RegionPlan> plan) {
  const auto stages = static_cast<int>(2 * impl_->layers.size()) + 2;
  if (plan != nullptr && plan->stages != stages) {
    fail_usage("bigbird", "the plan is for ", plan->stages,
               " stages; this model has ", stages,
               ": embeddings, two for each layer, and head");
  }
  impl_->plan = std::move(plan);
}

std::vector<std::pair<std::string, at::Tensor>>
BigBirdClassifier::named_parameters() const {
  return impl_->named_parameters();
}

std::vector<at::Tensor> BigBirdClassifier::parameters() const {
  std::vector<at::Tensor> parameters;
  for (auto& [name, parameter] : impl_->named_parameters()) {
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

const BigBirdConfig& BigBirdClassifier::config() const { return impl_->config; }

const std::vector<int64_t>& BigBirdClassifier::half_runs() const {
  return *impl_->half_runs;
}

}  // namespace remat::nn
