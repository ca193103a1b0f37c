#include "remat/nn/bigbird_input.h"

#include <ATen/ATen.h>

#include <string_view>

#include "remat/base/error.h"
#include "remat/base/log.h"

namespace remat::nn {
namespace {

constexpr std::string_view kOperation = "bigbird";

std::string shape_of(const at::Tensor& tensor) {
  std::string text = "[";
  for (const int64_t size : tensor.sizes()) {
    text += str(text.size() > 1 ? ", " : "", size);
  }
  return text + "]";
}

void check_shape(std::string_view name, const at::Tensor& tensor,
                 const at::Tensor& ids) {
  if (tensor.sizes() != ids.sizes()) {
    fail_usage(kOperation, name, " has shape ", shape_of(tensor),
               ", but input_ids has ", shape_of(ids));
  }
}

void check_dtype(std::string_view name, const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kLong) {
    fail_usage(kOperation, name, " has dtype ",
               c10::toString(tensor.scalar_type()),
               "; convert it to int64 (Long)");
  }
}

// On other devices reading a value back would stall the queue; the look-up
// itself checks there.
void check_range(std::string_view name, const at::Tensor& tensor, int64_t limit,
                 std::string_view limit_name) {
  if (!tensor.is_cpu()) {
    return;
  }
  for (const int64_t value :
       {tensor.min().item<int64_t>(), tensor.max().item<int64_t>()}) {
    if (value < 0 || value >= limit) {
      fail_usage(kOperation, name, " has ", value, ", outside [0, ", limit,
                 "): ", limit_name, " is ", limit,
                 "; is the tokenizer the model's?");
    }
  }
}

void check_mask(const at::Tensor& mask) {
  if (mask.is_cpu() &&
      !at::logical_or(mask == 0, mask == 1).all().item<bool>()) {
    fail_usage(kOperation,
               "attention_mask has values other than 0 (padding) and 1 (real)");
  }
}

PreparedInput check_input(const BigBirdConfig& config,
                          const BigBirdInput& input) {
  const at::Tensor& ids = input.input_ids;
  if (!ids.defined() || ids.dim() != 2 || ids.numel() == 0) {
    fail_usage(kOperation, "input_ids ",
               ids.defined() ? "has shape " + shape_of(ids) : "is undefined",
               "; it must be [batch, length], both at least 1");
  }
  check_dtype("input_ids", ids);
  check_range("input_ids", ids, config.vocab_size, "vocab_size");
  PreparedInput prepared;
  prepared.input_ids = ids;
  prepared.length = ids.size(1);
  if (prepared.length > config.max_position_embeddings) {
    fail_usage(kOperation, "the length is ", prepared.length,
               ", more than max_position_embeddings, which is ",
               config.max_position_embeddings, "; cut the input");
  }
  prepared.attention_mask = at::ones_like(ids);
  if (input.attention_mask.defined()) {
    prepared.attention_mask = input.attention_mask;
    check_shape("attention_mask", prepared.attention_mask, ids);
    check_mask(prepared.attention_mask);
  }
  prepared.token_type_ids = at::zeros_like(ids);
  if (input.token_type_ids.defined()) {
    prepared.token_type_ids = input.token_type_ids;
    check_shape("token_type_ids", prepared.token_type_ids, ids);
    check_dtype("token_type_ids", prepared.token_type_ids);
    check_range("token_type_ids", prepared.token_type_ids,
                config.type_vocab_size, "type_vocab_size");
  }
  return prepared;
}

// What block-sparse attention shows a query: the first block, the last, three
// neighbours, and the random ones.
int64_t tokens_seen(const BigBirdConfig& config) {
  return (5 + 2 * config.num_random_blocks) * config.block_size;
}

AttentionType choose_attention(const BigBirdConfig& config, int64_t length) {
  if (config.attention_type != AttentionType::kOriginalFull &&
      attends_in_full(config, length)) {
    say_once(kOperation,
             str("batches of at most ", tokens_seen(config),
                 " tokens attend in full: block-sparse attention needs more "
                 "than (5 + 2 * num_random_blocks) * block_size. Longer "
                 "batches are not affected"));
    return AttentionType::kOriginalFull;
  }
  return config.attention_type;
}

void pad_to_blocks(const BigBirdConfig& config, PreparedInput& prepared) {
  const int64_t padding =
      (config.block_size - prepared.length % config.block_size) %
      config.block_size;
  const int64_t padded = prepared.length + padding;
  if (padded > config.max_position_embeddings) {
    fail_usage(
        kOperation, "the length ", prepared.length, " is padded to ", padded,
        ", a multiple of block_size, but "
        "max_position_embeddings is ",
        config.max_position_embeddings, "; cut the input to ",
        config.max_position_embeddings / config.block_size * config.block_size);
  }
  if (padding > 0) {
    const auto pad = [&](at::Tensor& tensor, int64_t value) {
      tensor = at::constant_pad_nd(tensor, {0, padding}, value);
    };
    pad(prepared.input_ids, config.pad_token_id);
    pad(prepared.attention_mask, 0);
    pad(prepared.token_type_ids, 0);
  }
}

}  // namespace

bool attends_in_full(const BigBirdConfig& config, int64_t length) {
  return config.attention_type == AttentionType::kOriginalFull ||
         length <= tokens_seen(config);
}

PreparedInput prepare_bigbird_input(const BigBirdConfig& config,
                                    const BigBirdInput& input) {
  PreparedInput prepared = check_input(config, input);
  prepared.type = choose_attention(config, prepared.length);
  if (prepared.type != AttentionType::kOriginalFull) {
    pad_to_blocks(config, prepared);
  }
  return prepared;
}

}  // namespace remat::nn
