#include "remat/nn/bigbird_attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "remat/base/error.h"
#include "remat/runtime/dropout.h"

namespace remat::nn {
namespace {

constexpr double kSparseMaskBias = -10000.0;

double least_number(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return std::numeric_limits<double>::lowest();
    case at::kFloat:
      return std::numeric_limits<float>::lowest();
    case at::kHalf:
      return std::numeric_limits<c10::Half>::lowest();
    case at::kBFloat16:
      return std::numeric_limits<c10::BFloat16>::lowest();
    default:
      fail_usage("bigbird", "cannot compute in ", c10::toString(dtype),
                 "; use float, double, half or bfloat16");
  }
}

// Full attention that forms the probabilities, for dropout on them.
at::Tensor attend_with_dropout(const at::Tensor& query, const at::Tensor& key,
                               const at::Tensor& value,
                               const AttentionBatch& batch, uint64_t seed) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(query.size(3)));
  const at::Tensor scores =  // [batch, heads, query, key]
      at::matmul(query.transpose(1, 2), key.permute({0, 2, 3, 1})) * scale;
  const at::Tensor bias = batch.key_bias.unsqueeze(1).unsqueeze(1);
  const at::Tensor probabilities =
      stateless_dropout(at::softmax(scores + bias, -1), batch.dropout, seed);
  return at::matmul(probabilities, value.transpose(1, 2))
      .transpose(1, 2)
      .contiguous();
}

bool has_fused_kernel(const at::Tensor& x) {
  return x.is_cpu() &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
}

}  // namespace

AttentionBatch make_attention_batch(AttentionType type, const at::Tensor& mask,
                                    at::ScalarType dtype, double dropout) {
  AttentionBatch batch;
  batch.type = type;
  const at::Tensor real = mask.to(dtype);
  if (type == AttentionType::kOriginalFull) {
    batch.key_bias = (1 - real) * least_number(dtype);
    batch.dropout = dropout;
  } else {
    batch.key_bias = (1 - real) * kSparseMaskBias;
    batch.query_scale = real;
  }
  return batch;
}

at::Tensor attend(const at::Tensor& query, const at::Tensor& key,
                  const at::Tensor& value, const AttentionBatch& batch,
                  const std::shared_ptr<const kernels::BlockLayout>& layout,
                  uint64_t seed) {
  if (batch.dropout > 0) {
    return attend_with_dropout(query, key, value, batch, seed);
  }
  kernels::AttentionOptions options;
  options.key_bias = batch.key_bias;
  options.query_scale = batch.query_scale;
  if (batch.type == AttentionType::kSimulatedSparse) {
    return kernels::block_sparse_attention_simulated(query, key, value, *layout,
                                                     options);
  }
  if (!has_fused_kernel(query)) {
    return kernels::block_sparse_attention_aten(query, key, value, *layout,
                                                options);
  }
  return kernels::block_sparse_attention(query, key, value, layout, options);
}

}  // namespace remat::nn
