// The stages of a model as operators, and what attention computes.
//
// For the sources of remat/estimate and their tests.
#pragma once

#include <cstdint>

#include "remat/estimate/dtype.h"
#include "remat/estimate/model.h"
#include "remat/estimate/tape.h"

namespace remat::estimate {

enum class AttentionKind {
  kFused,          // keeps query, key, value, output and a few numbers
  kProbabilities,  // keeps the whole matrix of probabilities
  kGathered,       // block-sparse in tensor operations: keeps gathered blocks
};

// One batch, as the layers see it.
struct Shape {
  int64_t length = 0;  // tokens of a text, padding included
  int64_t batch = 0;
  Dtype dtype = Dtype::kFloat32;
  AttentionKind attention = AttentionKind::kFused;
  // Whether a query sees only some blocks of keys.
  bool is_sparse = false;
  // What attention computes in has 4 bytes although the dtype has 2: halves on
  // a CPU.
  bool attends_in_float = false;

  int64_t tokens() const { return length * batch; }
};

// Blocks of keys that the query blocks of one head see in one text.
struct SeenBlocks {
  int64_t block_size = 0;
  // Query blocks that see all: the first and the last one, or every one.
  int64_t full_rows = 0;
  // The others see first, last, three neighbours and random ones: how many
  // there are, and the sum of what they see.
  int64_t sparse_rows = 0;
  int64_t seen_by_sparse = 0;

  int64_t seen_by_full() const { return full_rows * (full_rows + sparse_rows); }
  int64_t total() const { return seen_by_full() + seen_by_sparse; }
};
SeenBlocks seen_blocks(const Model& model, const Shape& shape);

// Throw UsageError for tensors beyond 2^56 bytes.
Tape embeddings_tape(const Model& model, const Shape& shape);
Tape layer_tape(const Model& model, const Shape& shape);

// Time and memory of the head and the loss, forward and backward.
struct HeadCost {
  double flops = 0;
  double moved_bytes = 0;
  int64_t workspace_bytes = 0;
};
HeadCost head_cost(const Model& model, const Shape& shape);

}  // namespace remat::estimate
