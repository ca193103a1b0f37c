// A BigBird batch, checked and brought to the length that attention needs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "remat/nn/bigbird.h"
#include "remat/nn/bigbird_config.h"

namespace remat::nn {

struct PreparedInput {
  at::Tensor input_ids;  // [batch, length], each defined
  at::Tensor attention_mask;
  at::Tensor token_type_ids;
  int64_t length = 0;  // before padding

  // kOriginalFull if the batch is too short for block-sparse attention.
  AttentionType type = AttentionType::kOriginalFull;
};

// Whether a batch of so many tokens a text attends in full: because the model
// does, or because it is no longer than the blocks a query would see.
bool attends_in_full(const BigBirdConfig& config, int64_t length);

// Pads to whole blocks for block-sparse attention. A batch that is no longer
// than the blocks a query would see attends in full: this batch only, and the
// first one says so. Throws UsageError for shapes that differ, ids outside the
// vocabulary, masks other than 0 and 1, and lengths that have no positions.
PreparedInput prepare_bigbird_input(const BigBirdConfig& config,
                                    const BigBirdInput& input);

}  // namespace remat::nn
