// The keys and values that a block of queries sees, gathered tile by tile; part
// of block_attention_impl.h. See simd.h about linkage.
#pragma once

#include "remat/kernels/block_attention_kernel.h"
#include "remat/kernels/simd.h"

namespace remat::kernels {
namespace {

constexpr int64_t padded(int64_t size) {
  return (size + kPaddedTo - 1) / kPaddedTo * kPaddedTo;
}

// Hands out pieces of one block of memory.
template <class T>
struct Arena {
  T* next;
  T* take(int64_t elements) {
    T* piece = next;
    next += padded(elements);
    return piece;
  }
};

template <class T>
const T* row_of(const AttentionTensor<T>& tensor, int64_t batch,
                int64_t position, int64_t head) {
  return tensor.data + batch * tensor.batch + position * tensor.position +
         head * tensor.head;
}

// Copies a row. Rows are short: a call of memcpy for each would take longer
// than the copy.
template <class T, int Lanes>
void copy_row(const T* row, int64_t stride, int64_t size, T* target) {
  int64_t i = 0;
  if (stride == 1) {
    for (; i + Lanes <= size; i += Lanes) {
      Simd<T, Lanes>::store(target + i, Simd<T, Lanes>::load(row + i));
    }
  }
  for (; i < size; ++i) target[i] = row[i * stride];
}

// Up to kAttentionTile keys with their values, gathered from the blocks that
// a query block sees.
template <class T, int Lanes>
struct KeyTile {
  // Consecutive positions of the tile that are consecutive in the sequence.
  struct Run {
    int64_t first;
    int64_t row;
    int64_t count;
  };

  KeyTile(const AttentionProblem<T>& problem, Arena<T>& arena)
      : problem(problem),
        keys(arena.take(kAttentionTile * problem.head_dim)),
        values(arena.take(kAttentionTile * problem.head_dim)),
        bias(arena.take(kAttentionTile)) {}

  void clear() { rows = runs = 0; }

  void add(int64_t batch, int64_t head, int64_t first, int64_t count,
           int32_t multiplicity) {
    const int64_t head_dim = problem.head_dim;
    const T log_count =
        multiplicity == 1 ? T{0} : static_cast<T>(__builtin_log(multiplicity));
    run[runs++] = {first, rows, count};
    for (int64_t i = first; i < first + count; ++i, ++rows) {
      copy_row<T, Lanes>(row_of(problem.key, batch, i, head),
                         problem.key.element, head_dim, keys + rows * head_dim);
      copy_row<T, Lanes>(row_of(problem.value, batch, i, head),
                         problem.value.element, head_dim,
                         values + rows * head_dim);
      bias[rows] = log_count;
      if (problem.key_bias != nullptr) {
        bias[rows] += problem.key_bias[batch * problem.length + i];
      }
    }
  }

  const AttentionProblem<T>& problem;
  T* keys;    // rows x head_dim
  T* values;  // rows x head_dim
  T* bias;    // what is added to the scores of each key
  int64_t rows = 0;
  int64_t runs = 0;
  Run run[kAttentionTile];
};

// Walks over all keys of a query block, a tile at a time.
template <class T, int Lanes>
struct KeyWalk {
  KeyWalk(const AttentionProblem<T>& problem, const AttentionTile& queries)
      : problem(problem),
        batch(queries.batch),
        head(queries.head),
        entry(problem.layout->begin(queries.head, queries.block)),
        end(problem.layout->end(queries.head, queries.block)) {}

  // Fills the tile; false when there is nothing left.
  bool next(KeyTile<T, Lanes>& tile) {
    tile.clear();
    const int64_t block_size = problem.layout->block_size();
    while (entry != end && tile.rows < kAttentionTile) {
      const int64_t start = entry->key_block * block_size;
      const int64_t left = problem.length - start - offset;
      const int64_t in_block =
          left < block_size - offset ? left : block_size - offset;
      const int64_t room = kAttentionTile - tile.rows;
      const int64_t count = in_block < room ? in_block : room;
      tile.add(batch, head, start + offset, count, entry->count);
      offset += count;
      if (count == in_block) {
        ++entry;
        offset = 0;
      }
    }
    return tile.rows > 0;
  }

  const AttentionProblem<T>& problem;
  int64_t batch;
  int64_t head;
  const BlockLayout::Entry* entry;
  const BlockLayout::Entry* end;
  int64_t offset = 0;
};

}  // namespace
}  // namespace remat::kernels
