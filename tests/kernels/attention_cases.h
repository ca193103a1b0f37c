// Random problems of block-sparse attention, for its tests.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "remat/kernels/block_sparse_attention.h"

namespace remat::kernels {

struct AttentionCase {
  std::shared_ptr<const BlockLayout> layout;
  at::Tensor query, key, value;  // leaves that require gradients
  at::Tensor gradient;           // of the output
  AttentionOptions options;
};

struct AttentionShape {
  int64_t batch = 1, heads = 1, head_dim = 4, block_size = 4, length = 10;
};

// Each query block lists from one to all blocks, some of them repeatedly; the
// first and the last one see everything.
inline std::shared_ptr<const BlockLayout> random_layout(
    const AttentionShape& shape, std::mt19937& random) {
  const int64_t blocks =
      (shape.length + shape.block_size - 1) / shape.block_size;
  std::vector<std::vector<std::vector<int32_t>>> lists(shape.heads);
  for (auto& head : lists) {
    head.resize(blocks);
    for (int64_t block = 0; block < blocks; ++block) {
      if (block == 0 || block == blocks - 1) {
        for (int64_t key = 0; key < blocks; ++key) head[block].push_back(key);
      }
      const int64_t more = 1 + random() % 5;
      for (int64_t i = 0; i < more; ++i) {
        head[block].push_back(static_cast<int32_t>(random() % blocks));
      }
    }
  }
  return std::make_shared<const BlockLayout>(shape.block_size, lists);
}

inline AttentionCase random_case(const AttentionShape& shape, uint32_t seed,
                                 at::ScalarType type = at::kDouble,
                                 bool masked = false) {
  std::mt19937 random(seed);
  at::manual_seed(seed);
  const std::vector<int64_t> sizes = {shape.batch, shape.length, shape.heads,
                                      shape.head_dim};
  const auto leaf = [&] {
    return at::randn(sizes, at::kDouble).to(type).requires_grad_();
  };
  AttentionCase problem{
      random_layout(shape, random),           leaf(), leaf(), leaf(),
      at::randn(sizes, at::kDouble).to(type), {}};
  if (masked) {
    const at::Tensor padding =
        at::rand({shape.batch, shape.length}, at::kDouble).lt(0.3);
    problem.options.key_bias = padding.to(type) * -10000.0;
    problem.options.query_scale = padding.logical_not().to(type) * 1.5;
    problem.options.scale = 0.7;
  }
  return problem;
}

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace remat::kernels
