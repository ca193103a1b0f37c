// The inner loops of block-sparse attention, on plain pointers: what
// block_sparse_attention.cpp calls for each piece of work.
#pragma once

#include <cstdint>

#include "remat/kernels/block_layout.h"

namespace remat::kernels {

// Queries, and keys, that are worked on at a time, at most.
constexpr int64_t kAttentionTile = 64;

// A [batch, length, heads, head_dim] tensor of any strides, in elements.
template <class T>
struct AttentionTensor {
  const T* data;
  int64_t batch;
  int64_t position;
  int64_t head;
  int64_t element;
};

// What forward and backward share.
template <class T>
struct AttentionProblem {
  const BlockLayout* layout;
  int64_t batch;
  int64_t length;
  int64_t heads;
  int64_t head_dim;
  T scale;
  AttentionTensor<T> query;
  AttentionTensor<T> key;
  AttentionTensor<T> value;
  const T* key_bias;     // [batch, length] or null
  const T* query_scale;  // [batch, length] or null
};

// Written by forward, read by backward. Contiguous.
template <class T>
struct AttentionResult {
  T* output;   // [batch, length, heads, head_dim], query_scale applied
  T* maximum;  // [batch, heads, length]: largest score of a query
  T* sum;      // [batch, heads, length]: sum of exp(score - maximum)
};

template <class T>
struct AttentionGradients {
  AttentionTensor<T> output;
  T* query;  // these three [batch, length, heads, head_dim], contiguous
  T* key;
  T* value;
};

// At most kAttentionTile consecutive positions inside one block.
struct AttentionTile {
  int64_t batch;
  int64_t head;
  int64_t block;
  int64_t first;
  int64_t count;
};

// Every function writes the rows of its tile (or head) and no others, with
// scratch of attention_scratch elements aligned to 64 bytes. backward_queries
// together with backward_keys gives bit for bit what backward gives.
template <class T>
struct AttentionKernels {
  void (*forward)(const AttentionProblem<T>&, const AttentionResult<T>&,
                  const AttentionTile& queries, T* scratch);

  // All three gradients of one head: tiles are its tile_count tiles in order.
  void (*backward)(const AttentionProblem<T>&, const AttentionResult<T>&,
                   const AttentionGradients<T>&, const AttentionTile* tiles,
                   int64_t tile_count, T* scratch);

  // The gradient of the queries of one tile.
  void (*backward_queries)(const AttentionProblem<T>&,
                           const AttentionResult<T>&,
                           const AttentionGradients<T>&,
                           const AttentionTile& queries, T* scratch);

  // The gradients of the keys and values of one tile; tiles as in backward.
  void (*backward_keys)(const AttentionProblem<T>&, const AttentionResult<T>&,
                        const AttentionGradients<T>&, const AttentionTile& keys,
                        const AttentionTile* tiles, int64_t tile_count,
                        T* scratch);
};

// Elements of scratch: for backward of a whole head, its length of keys, else
// kAttentionTile.
int64_t attention_scratch(int64_t head_dim, int64_t keys);

// The kernels for this machine, see cpu_features.h. T: float or double.
template <class T>
const AttentionKernels<T>& attention_kernels();

}  // namespace remat::kernels
