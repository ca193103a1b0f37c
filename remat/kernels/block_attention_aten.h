// What the sources of block-sparse attention share beside its public header.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "remat/kernels/block_sparse_attention.h"

namespace remat::kernels {

// Throws UsageError where shapes, dtypes or devices do not match.
void check_attention(const at::Tensor& query, const at::Tensor& key,
                     const at::Tensor& value, const BlockLayout& layout,
                     const AttentionOptions& options);

// The factor of the scores: options.scale or its default.
double attention_scale(const AttentionOptions& options, int64_t head_dim);

// The gradients of query, key and value where that of the output is given, in
// ATen operations: themselves differentiable in all four.
std::array<at::Tensor, 3> block_sparse_attention_gradients_aten(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& output_gradient, const BlockLayout& layout,
    const AttentionOptions& options);

}  // namespace remat::kernels
