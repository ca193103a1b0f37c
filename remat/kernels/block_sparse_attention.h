// Attention in which each block of queries sees a list of blocks of keys.
//
// Zaheer et al.: Big Bird: Transformers for Longer Sequences (NeurIPS 2020);
// softmax over blocks with a running maximum, and its recomputation in
// backward, as in Dao et al.: FlashAttention (NeurIPS 2022). Memory is linear
// in the length: beside its inputs, forward keeps the output and two numbers
// per query and head.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "remat/kernels/block_layout.h"

namespace remat::kernels {

struct AttentionOptions {
  // Multiplies query . key. 0, the default, means 1 / sqrt(head_dim).
  double scale = 0.0;

  // [batch, length], added to the scores of a key: 0 or a large negative
  // number at padding. Undefined: nothing is added. Not differentiated.
  at::Tensor key_bias;

  // [batch, length], multiplies the output of a query: 0 at padding where the
  // model wants it. Undefined: 1. Not differentiated.
  at::Tensor query_scale;
};

// softmax over each query's key list of (scale q . k + key_bias + log count),
// times v, times query_scale.
//
// query, key, value: [batch, length, heads, head_dim], float or double, any
// strides; length at most blocks * block_size and more than
// (blocks - 1) * block_size: the last block may be shorter. Returns a
// contiguous [batch, length, heads, head_dim]. Differentiable in query, key and
// value, twice. The result does not depend on the thread count. Throws
// UsageError that names shape, dtype or device if they do not match.
at::Tensor block_sparse_attention(const at::Tensor& query,
                                  const at::Tensor& key,
                                  const at::Tensor& value,
                                  std::shared_ptr<const BlockLayout> layout,
                                  const AttentionOptions& options = {});

// The same in ATen operations, by gathering the key blocks of each query block
// (lists of the same length together): the path of other devices and dtypes.
at::Tensor block_sparse_attention_aten(const at::Tensor& query,
                                       const at::Tensor& key,
                                       const at::Tensor& value,
                                       const BlockLayout& layout,
                                       const AttentionOptions& options = {});

// The same once more, with the whole matrix of scores and a matrix of counts:
// the oracle. Memory is quadratic in the length.
at::Tensor block_sparse_attention_simulated(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const BlockLayout& layout, const AttentionOptions& options = {});

}  // namespace remat::kernels
