// BigBird's self-attention between its projections.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "remat/kernels/block_sparse_attention.h"
#include "remat/nn/bigbird_config.h"

namespace remat::nn {

// What all layers of one forward share: how this batch attends.
struct AttentionBatch {
  // kOriginalFull also for batches too short for sparse attention.
  AttentionType type = AttentionType::kBlockSparse;

  // [batch, length] of the weights' dtype: added to the scores of a key.
  at::Tensor key_bias;

  // [batch, length]: 0 at masked queries. Undefined in full attention.
  at::Tensor query_scale;

  // Of the probabilities, in full attention; 0 in evaluation.
  double dropout = 0;
};

// How this batch attends. mask: [batch, length], 1 = real. Sparse attention
// adds -10000 to masked keys and clears masked queries, full attention adds the
// dtype's least number: as Hugging Face.
AttentionBatch make_attention_batch(AttentionType type, const at::Tensor& mask,
                                    at::ScalarType dtype, double dropout);

// query, key, value: [batch, length, heads, head_size]. Returns the same,
// contiguous. seed: of the dropout's mask.
at::Tensor attend(const at::Tensor& query, const at::Tensor& key,
                  const at::Tensor& value, const AttentionBatch& batch,
                  const std::shared_ptr<const kernels::BlockLayout>& layout,
                  uint64_t seed);

}  // namespace remat::nn
