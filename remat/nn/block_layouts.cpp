#include "remat/nn/block_layouts.h"

#include "remat/nn/random_blocks.h"

namespace remat::nn {
namespace {

// In full attention blocks are only the grain of the work.
constexpr int64_t kDenseBlock = 64;

RandomPlan draw_plan(const BigBirdConfig& config, int64_t layer, int64_t blocks,
                     bool training) {
  const RandomPlanShape shape{config.num_attention_heads, blocks,
                              config.block_size, config.num_random_blocks,
                              config.max_position_embeddings};
  if (!training) {
    return zero_plan(shape);
  }
  switch (config.random_blocks) {
    case RandomBlocks::kPhilox:
      return draw_philox_plan(shape, static_cast<uint64_t>(layer));
    case RandomBlocks::kNumpy:
      break;
  }
  return draw_numpy_plan(shape, static_cast<uint32_t>(layer));
}

}  // namespace

BlockLayouts::Layout BlockLayouts::sparse(int64_t layer, int64_t blocks,
                                          bool training) {
  Layout& layout = sparse_[{training ? layer : 0, blocks, training}];
  if (layout == nullptr) {
    layout = std::make_shared<const kernels::BlockLayout>(
        config_.block_size,
        key_block_lists(blocks, draw_plan(config_, layer, blocks, training)));
  }
  return layout;
}

BlockLayouts::Layout BlockLayouts::dense(int64_t length) {
  const int64_t blocks = (length + kDenseBlock - 1) / kDenseBlock;
  Layout& layout = dense_[blocks];
  if (layout == nullptr) {
    layout = std::make_shared<const kernels::BlockLayout>(
        kernels::BlockLayout::dense(kDenseBlock, config_.num_attention_heads,
                                    blocks));
  }
  return layout;
}

}  // namespace remat::nn
