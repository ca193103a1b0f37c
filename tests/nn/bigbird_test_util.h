// Models, batches and comparisons that the tests of BigBird share.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "remat/io/safetensors.h"
#include "remat/nn/bigbird.h"

namespace remat::nn {

using Gradients = std::map<std::string, at::Tensor>;

// A folder of numbers that Hugging Face computed; see tests/golden.
class Fixture {
 public:
  explicit Fixture(const std::string& name);

  const BigBirdConfig& config() const { return config_; }
  BigBirdInput input() const;
  at::Tensor labels() const { return inputs_.tensor("labels"); }
  at::Tensor expected(const std::string& name) const {
    return expected_.tensor(name);
  }
  size_t count_gradients() const;

  // Copies the weights. The file may be a BigBirdModel's, whose names lack
  // "bert." and which has no classifier.
  void load_weights(BigBirdClassifier& model) const;

 private:
  std::string directory_;
  BigBirdConfig config_;
  io::SafetensorsFile model_;
  io::SafetensorsFile inputs_;
  io::SafetensorsFile expected_;
};

// |got - want| <= absolute + relative * max|want|. Returns the greatest
// difference.
double expect_close(const at::Tensor& got, const at::Tensor& want,
                    double absolute, double relative, const std::string& name);

// A loss with its gradients, which are cleared first. Parameters that have
// none get zeros.
struct LossAndGradients {
  at::Tensor loss;
  Gradients gradients;
};
LossAndGradients backward(BigBirdClassifier& model, const at::Tensor& loss);

// Equal in each bit.
void expect_equal(const LossAndGradients& got, const LossAndGradients& want);

// Two heads of 4, blocks of 4, one random block: sparse above 28 tokens.
BigBirdConfig tiny_config();

// Random ids and token types; row r loses r * length / 5 tokens at its end.
BigBirdInput tiny_input(int64_t batch, int64_t length, uint64_t seed);

// Weights that make attention far from uniform.
void randomize_weights(BigBirdClassifier& model, uint64_t seed);

// The mean of the logits' cross-entropy for the classes 0, 1, 0, ...
at::Tensor classification_loss(const at::Tensor& logits);

}  // namespace remat::nn
