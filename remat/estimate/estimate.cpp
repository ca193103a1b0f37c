#include "remat/estimate/estimate.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/base/suggest.h"
#include "remat/estimate/stages.h"

namespace remat::estimate {
namespace {

constexpr std::array<std::string_view, 3> kAttentions{"automatic", "fused",
                                                      "eager"};
constexpr std::array<std::string_view, 3> kOffloads{"none", "host", "disk"};

constexpr int64_t kMaxBatch = int64_t{1} << 20;

template <class Value>
Value parse(std::string_view where, std::string_view text,
            const std::array<std::string_view, 3>& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (text == names[i]) {
      return static_cast<Value>(i);
    }
  }
  fail_usage("plan", where, " is ", text, "; it must be ", names[0], ", ",
             names[1], " or ", names[2],
             did_you_mean(text, {names.begin(), names.end()}));
}

// Whose errors name the fields as the caller knows them.
class Checker {
 public:
  explicit Checker(std::string_view prefix) : prefix_(prefix) {}

  template <class Value, class... Reason>
  [[noreturn]] void refuse(std::string_view field, const Value& value,
                           const Reason&... reason) const {
    fail_usage("plan", prefix_, field, " is ", value, "; ", reason...);
  }

 private:
  std::string_view prefix_;
};

void check_workload(const Model& model, const Device& device,
                    const Workload& work, const Checker& checker) {
  if (work.sequence_length < 1) {
    checker.refuse("seq-length", work.sequence_length,
                   "a text has at least 1 token");
  }
  if (work.sequence_length > model.max_positions) {
    checker.refuse("seq-length", format_thousands(work.sequence_length),
                   "the model has positions for ",
                   format_thousands(model.max_positions),
                   " tokens. For longer texts raise ",
                   model.family == Family::kGpt2 ? "n_positions"
                                                 : "max_position_embeddings",
                   " in its config.json and train the new positions");
  }
  if (work.batch_size < 1 || work.batch_size > kMaxBatch) {
    checker.refuse("batch-size", work.batch_size, "it must be from 1 to ",
                   format_thousands(kMaxBatch));
  }
  if (device.peak_flops(work.dtype) <= 0) {
    std::string others;
    for (const Dtype dtype : kDtypes) {
      if (device.peak_flops(dtype) > 0) {
        others += str(others.empty() ? "" : " or ", name_of(dtype));
      }
    }
    checker.refuse("dtype", name_of(work.dtype), device.name,
                   " has no rate of matrix products for it; use ", others);
  }
}

int64_t padded_length(const Model& model, const Workload& work, bool is_sparse,
                      const Checker& checker) {
  if (!is_sparse) {
    return work.sequence_length;
  }
  const int64_t padded = (work.sequence_length + model.block_size - 1) /
                         model.block_size * model.block_size;
  if (padded > model.max_positions) {
    checker.refuse("seq-length", format_thousands(work.sequence_length),
                   "padded to whole blocks of ", model.block_size, " it is ",
                   format_thousands(padded),
                   ", and the model has positions "
                   "for ",
                   format_thousands(model.max_positions), " tokens");
  }
  return padded;
}

AttentionKind attention_kind(const Model& model, const Device& device,
                             const Workload& work, bool is_sparse) {
  if (work.attention == Attention::kFused) {
    return AttentionKind::kFused;
  }
  if (model.family != Family::kBigBird ||
      (!is_sparse && model.attention_dropout > 0)) {
    return AttentionKind::kProbabilities;
  }
  const bool has_kernel = device.is_cpu && work.dtype == Dtype::kFloat32;
  return work.attention == Attention::kAutomatic && has_kernel
             ? AttentionKind::kFused
             : AttentionKind::kGathered;
}

Shape shape_of(const Model& model, const Device& device, const Workload& work,
               const Checker& checker) {
  Shape shape;
  shape.batch = work.batch_size;
  shape.dtype = work.dtype;
  // Shorter batches attend in full, as in remat/nn.
  shape.is_sparse =
      model.is_sparse &&
      work.sequence_length > (5 + 2 * model.random_blocks) * model.block_size;
  shape.length = padded_length(model, work, shape.is_sparse, checker);
  shape.attention = attention_kind(model, device, work, shape.is_sparse);
  shape.attends_in_float = device.is_cpu && work.dtype != Dtype::kFloat32 &&
                           shape.attention == AttentionKind::kGathered;
  return shape;
}

plan::Stage stage_of(const std::string& name, const Tape& tape,
                     int64_t output_bytes, const Tape::Rates& rates) {
  const Tape::Memory memory = tape.memory();
  plan::Stage stage;
  stage.name = name;
  stage.forward_seconds = tape.forward_seconds(rates);
  stage.backward_seconds = tape.backward_seconds(rates);
  stage.output_bytes = output_bytes;
  stage.saved_bytes = memory.saved_bytes;
  stage.forward_workspace_bytes = memory.forward_workspace_bytes;
  stage.backward_workspace_bytes = memory.backward_workspace_bytes;
  return stage;
}

// Token ids, mask and types or labels, and what the layers make of the mask.
int64_t input_bytes(const Model& model, const Shape& shape) {
  constexpr int64_t kIndex = 8;
  const int64_t of_ids = model.family == Family::kGpt2 ? 2 : 3;
  const int64_t of_labels = model.head == Head::kLanguageModel ? 1 : 0;
  return shape.tokens() *
         (kIndex * (of_ids + of_labels) + 2 * bytes_of(shape.dtype));
}

void add_offload(plan::Chain& chain, const Device& device, Offload offload,
                 const Checker& checker) {
  const bool to_disk = offload == Offload::kDisk;
  const double peak = to_disk ? device.disk_bytes_per_second
                              : device.host_link_bytes_per_second;
  if (peak <= 0) {
    checker.refuse(
        "offload", name_of(offload), device.name, " has no ",
        to_disk ? "disk" : "host link", " rate; give a device file with ",
        to_disk ? "disk_bytes_per_second" : "host_link_bytes_per_second");
  }
  const double rate = peak * device.link_efficiency;
  plan::Store store;
  store.name = std::string(name_of(offload));
  store.write_bytes_per_second = rate;
  store.read_bytes_per_second = rate;
  chain.stores.push_back(store);
  for (plan::Stage& stage : chain.stages) {
    plan::StageOption option;
    option.name = store.name;
    option.store = 0;
    option.stored_bytes = stage.saved_bytes - stage.output_bytes;
    option.extra_forward_seconds =
        static_cast<double>(option.stored_bytes) / rate;
    option.extra_backward_seconds = option.extra_forward_seconds;
    option.forward_workspace_bytes =
        stage.forward_workspace_bytes + option.stored_bytes;
    option.backward_workspace_bytes =
        stage.backward_workspace_bytes + option.stored_bytes;
    stage.options.push_back(option);
  }
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f%%", 100 * share);
  return text;
}

std::string per_second(double rate, const char* unit) {
  char text[48];
  const double giga = rate / 1e9;
  if (giga >= 1000) {
    std::snprintf(text, sizeof text, "%.4g T%s/s", giga / 1000, unit);
  } else {
    std::snprintf(text, sizeof text, "%.4g G%s/s", giga, unit);
  }
  return text;
}

std::string attention_sentence(const Model& model, const Shape& shape,
                               const Workload& work) {
  const bool is_assumed = work.attention == Attention::kFused;
  switch (shape.attention) {
    case AttentionKind::kFused:
      return str(
          "attention in a fused kernel, which keeps query, key, value "
          "and output",
          is_assumed && model.family == Family::kBigBird
              ? " (remat has one for CPUs in float32 alone)"
              : "");
    case AttentionKind::kProbabilities:
      return "attention in tensor operations, which keep the whole matrix of "
             "probabilities; --attention fused is without";
    case AttentionKind::kGathered:
      break;
  }
  return "attention in tensor operations, which keep probabilities and "
         "gathered blocks of keys and values (remat's path without its "
         "kernel); --attention fused is without";
}

std::vector<std::string> assumptions_of(const Model& model,
                                        const Device& device,
                                        const Workload& work,
                                        const Shape& shape) {
  std::vector<std::string> said;
  said.push_back(
      str("layers as ",
          model.family == Family::kBigBird ? "remat's own"
                                           : "Hugging Face's (eager)",
          " keep them under plain autograd; head: ", name_of(model.head)));
  if (model.is_sparse && !shape.is_sparse) {
    said.push_back("texts this short attend in full, not block-sparse");
  }
  said.push_back(attention_sentence(model, shape, work));
  said.push_back(
      work.dtype == Dtype::kFloat32
          ? "weights, gradients and both AdamW moments in float32: 16 bytes a "
            "parameter"
          : str("weights and gradients in ", name_of(work.dtype),
                ", AdamW with two moments and a copy of the weights in "
                "float32: 16 bytes a parameter"));
  said.push_back(
      str("matrix products at ", percent(device.matrix_efficiency), " of ",
          per_second(device.peak_flops(work.dtype), "FLOP"),
          ", everything else at ", percent(device.memory_efficiency), " of ",
          per_second(device.memory_bytes_per_second, "B"),
          "; launches, the optimizer's step and the host cost nothing"));
  if (work.offload != Offload::kNone) {
    said.push_back(str("moves to ", name_of(work.offload), " at ",
                       percent(device.link_efficiency),
                       " of the link, not beside computing"));
  }
  said.push_back(
      "not counted: the process itself, the device's context and libraries, "
      "and what the allocator loses; leave some room");
  return said;
}

}  // namespace

std::string_view name_of(Attention attention) {
  return kAttentions[static_cast<size_t>(attention)];
}

Attention parse_attention(std::string_view where, std::string_view text) {
  return parse<Attention>(where, text, kAttentions);
}

std::string_view name_of(Offload offload) {
  return kOffloads[static_cast<size_t>(offload)];
}

Offload parse_offload(std::string_view where, std::string_view text) {
  return parse<Offload>(where, text, kOffloads);
}

Estimate estimate(const Model& model, const Device& device,
                  const Workload& work, std::string_view prefix) {
  const Checker checker(prefix);
  check_workload(model, device, work, checker);
  const Shape shape = shape_of(model, device, work, checker);
  const Tape::Rates rates{
      device.peak_flops(work.dtype) * device.matrix_efficiency,
      device.memory_bytes_per_second * device.memory_efficiency};

  Estimate result;
  result.padded_length = shape.length;
  result.parameters = count_parameters(model);
  const int64_t number = bytes_of(work.dtype);
  result.weights_bytes = number * result.parameters.total;
  result.gradients_bytes = number * result.parameters.trained();
  // Two moments, and with halves the weights once more.
  result.optimizer_bytes =
      (work.dtype == Dtype::kFloat32 ? 8 : 12) * result.parameters.trained();

  plan::Chain& chain = result.chain;
  chain.fixed_bytes =
      result.weights_bytes + result.gradients_bytes + result.optimizer_bytes;
  chain.input_bytes = input_bytes(model, shape);
  const Tape layer = layer_tape(model, shape);
  const int64_t width_bytes = shape.tokens() * model.hidden_size * number;
  chain.stages.push_back(stage_of("embeddings", embeddings_tape(model, shape),
                                  width_bytes, rates));
  if (model.head == Head::kLanguageModel && model.ties_embeddings) {
    // The second gradient of the shared weights, until it is added.
    chain.stages.front().backward_workspace_bytes +=
        model.vocab_size * model.hidden_size * number;
  }
  const plan::Stage stage = stage_of("", layer, width_bytes, rates);
  for (int64_t i = 0; i < model.layers; ++i) {
    chain.stages.push_back(stage);
    chain.stages.back().name = str("layer ", i);
  }
  const HeadCost head = head_cost(model, shape);
  chain.loss.seconds = std::max(head.flops / rates.flops_per_second,
                                head.moved_bytes / rates.bytes_per_second);
  chain.loss.workspace_bytes = head.workspace_bytes;
  if (work.offload != Offload::kNone) {
    add_offload(chain, device, work.offload, checker);
  }
  plan::validate(chain);
  result.assumptions = assumptions_of(model, device, work, shape);
  return result;
}

}  // namespace remat::estimate
