#include "tests/nn/bigbird_test_util.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "remat/base/file.h"

namespace remat::nn {
namespace {

std::string fixture_directory(const std::string& name) {
  return std::string(REMAT_GOLDEN_DIR) + "/" + name;
}

}  // namespace

Fixture::Fixture(const std::string& name)
    : directory_(fixture_directory(name)),
      config_(parse_bigbird_config(read_file(directory_ + "/config.json"),
                                   directory_ + "/config.json")),
      model_(directory_ + "/model.safetensors"),
      inputs_(directory_ + "/inputs.safetensors"),
      expected_(directory_ + "/expected.safetensors") {}

BigBirdInput Fixture::input() const {
  return {inputs_.tensor("input_ids"), inputs_.tensor("attention_mask"),
          inputs_.tensor("token_type_ids")};
}

size_t Fixture::count_gradients() const {
  size_t count = 0;
  for (const std::string& name : expected_.names()) {
    count += name.rfind("grad.", 0) == 0 ? 1 : 0;
  }
  return count;
}

void Fixture::load_weights(BigBirdClassifier& model) const {
  const c10::NoGradGuard no_grad;
  const std::string prefix = "bert.";
  size_t loaded = 0;
  for (const auto& [name, parameter] : model.named_parameters()) {
    std::string stored = name;
    if (!model_.has(name) && name.rfind(prefix, 0) == 0) {
      stored = name.substr(prefix.size());
    }
    if (!model_.has(stored) && name.rfind("classifier.", 0) == 0) {
      continue;
    }
    const at::Tensor value = model_.tensor(stored);
    ASSERT_EQ(value.sizes(), parameter.sizes()) << name;
    parameter.copy_(value);
    ++loaded;
  }
  EXPECT_EQ(loaded, model_.names().size());
}

double expect_close(const at::Tensor& got, const at::Tensor& want,
                    double absolute, double relative, const std::string& name) {
  EXPECT_EQ(got.sizes(), want.sizes()) << name;
  if (got.sizes() != want.sizes()) {
    return INFINITY;
  }
  const double difference = (got - want).abs().max().item<double>();
  const double bound = absolute + relative * want.abs().max().item<double>();
  EXPECT_LE(difference, bound) << name;
  return difference;
}

LossAndGradients backward(BigBirdClassifier& model, const at::Tensor& loss) {
  const auto parameters = model.named_parameters();
  for (const auto& [name, parameter] : parameters) {
    parameter.mutable_grad() = at::Tensor();
  }
  loss.backward();
  LossAndGradients result{loss.detach(), {}};
  for (const auto& [name, parameter] : parameters) {
    const at::Tensor gradient = parameter.grad();
    result.gradients[name] =
        gradient.defined() ? gradient.clone() : at::zeros_like(parameter);
  }
  return result;
}

void expect_equal(const LossAndGradients& got, const LossAndGradients& want) {
  EXPECT_TRUE(at::equal(got.loss, want.loss));
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  for (const auto& [name, gradient] : want.gradients) {
    EXPECT_TRUE(at::equal(got.gradients.at(name), gradient)) << name;
  }
}

BigBirdConfig tiny_config() {
  BigBirdConfig config;
  config.vocab_size = 30;
  config.hidden_size = 8;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 12;
  config.hidden_dropout_prob = 0;
  config.attention_probs_dropout_prob = 0;
  config.max_position_embeddings = 64;
  config.block_size = 4;
  config.num_random_blocks = 1;
  return config;
}

BigBirdInput tiny_input(int64_t batch, int64_t length, uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  BigBirdInput input;
  input.input_ids = at::randint(1, 30, {batch, length}, generator, at::kLong);
  input.token_type_ids =
      at::randint(0, 2, {batch, length}, generator, at::kLong);
  input.attention_mask = at::ones({batch, length}, at::kLong);
  for (int64_t row = 0; row < batch; ++row) {
    input.attention_mask[row].slice(0, length - row * length / 5).zero_();
  }
  return input;
}

void randomize_weights(BigBirdClassifier& model, uint64_t seed) {
  const c10::NoGradGuard no_grad;
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  for (const auto& [name, parameter] : model.named_parameters()) {
    const bool is_norm = name.find("LayerNorm.weight") != std::string::npos;
    parameter.normal_(is_norm ? 1.0 : 0.0, is_norm ? 0.1 : 0.5, generator);
  }
}

at::Tensor classification_loss(const at::Tensor& logits) {
  return at::cross_entropy_loss(
      logits, at::arange(logits.size(0), at::kLong).remainder(2));
}

}  // namespace remat::nn
