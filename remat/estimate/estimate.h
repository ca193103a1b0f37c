// From a model's configuration, a workload and a machine that need not be here
// to a chain for the planner: an estimate, not a measurement.
//
// docs/cost-model.md has the formulas and the assumptions. Times are a roofline
// by operator: the longer of computing at a share of the device's peak and of
// moving its tensors (Williams et al., "Roofline", CACM 2009).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "remat/estimate/device.h"
#include "remat/estimate/dtype.h"
#include "remat/estimate/model.h"
#include "remat/plan/chain.h"

namespace remat::estimate {

enum class Attention {
  // What runs without further ado: remat's kernel for BigBird on a CPU in
  // float32, tensor operations everywhere else.
  kAutomatic,
  // A kernel that never holds the probabilities: remat's, FlashAttention.
  kFused,
  // Tensor operations, which keep the probabilities for backward.
  kEager,
};

// "automatic", "fused", "eager". parse_attention throws UsageError as
// parse_head.
std::string_view name_of(Attention attention);
Attention parse_attention(std::string_view where, std::string_view text);

// Where saved states may wait beside the device, as an option for each stage.
enum class Offload { kNone, kHost, kDisk };

std::string_view name_of(Offload offload);
Offload parse_offload(std::string_view where, std::string_view text);

struct Workload {
  int64_t sequence_length = 0;  // tokens of a text
  int64_t batch_size = 1;       // texts of a forward
  // Of weights, gradients and activations.
  Dtype dtype = Dtype::kFloat32;
  Attention attention = Attention::kAutomatic;
  Offload offload = Offload::kNone;
};

struct Estimate {
  // Stages "embeddings", "layer 0", ...; the loss has the head in it.
  plan::Chain chain;
  Parameters parameters;
  // The parts of chain.fixed_bytes.
  int64_t weights_bytes = 0;
  int64_t gradients_bytes = 0;
  int64_t optimizer_bytes = 0;
  // Tokens of a text with the padding to whole blocks.
  int64_t padded_length = 0;
  // What was taken to be so, a sentence each, for people.
  std::vector<std::string> assumptions;
};

// Throws UsageError naming the field of the workload ("seq-length",
// "batch-size", "dtype", "offload", with `prefix` in front), its value and the
// remedy: a length beyond the model's positions, numbers below 1, a dtype or a
// link that the device has no rate for, tensors beyond 2^56 bytes.
Estimate estimate(const Model& model, const Device& device,
                  const Workload& workload, std::string_view prefix = "");

}  // namespace remat::estimate
