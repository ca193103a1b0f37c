// The layouts of BigBird's attention, built once for a length and a layer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "remat/kernels/block_sparse_attention.h"
#include "remat/nn/bigbird_config.h"

namespace remat::nn {

// Hugging Face draws the same plan at every forward, so it can be kept. Not
// thread-safe.
class BlockLayouts {
 public:
  using Layout = std::shared_ptr<const kernels::BlockLayout>;

  // The configuration must outlive this object.
  explicit BlockLayouts(const BigBirdConfig& config) : config_(config) {}

  // Block-sparse, for a length in whole blocks. In evaluation all layers share
  // one plan.
  Layout sparse(int64_t layer, int64_t blocks, bool training);

  // Every query sees every key of the length.
  Layout dense(int64_t length);

 private:
  const BigBirdConfig& config_;
  std::map<std::tuple<int64_t, int64_t, bool>, Layout> sparse_;
  std::map<int64_t, Layout> dense_;
};

}  // namespace remat::nn
