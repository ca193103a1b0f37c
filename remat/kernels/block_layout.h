// Which blocks of keys each block of queries sees. Knows no tensor.
#pragma once

#include <cstdint>
#include <vector>

namespace remat::kernels {

// Which key blocks each query block of each head sees, and how often. Shared,
// never changed once built.
class BlockLayout {
 public:
  struct Entry {
    int32_t key_block;
    int32_t count;  // how many times it is listed; at least 1
  };

  // lists[head][query block]: key blocks, in any order, repeats meant. Throws
  // UsageError for an empty list or a block outside [0, blocks).
  BlockLayout(int64_t block_size,
              const std::vector<std::vector<std::vector<int32_t>>>& lists);

  // Every query block sees every key block once.
  static BlockLayout dense(int64_t block_size, int64_t heads, int64_t blocks);

  int64_t block_size() const { return block_size_; }
  int64_t heads() const { return heads_; }
  int64_t blocks() const { return blocks_; }

  // The list of one query block, sorted by key block.
  const Entry* begin(int64_t head, int64_t query_block) const {
    return entries_.data() + offsets_[head * blocks_ + query_block];
  }
  const Entry* end(int64_t head, int64_t query_block) const {
    return entries_.data() + offsets_[head * blocks_ + query_block + 1];
  }
  // How often a query block lists a key block; 0 if it does not see it.
  int32_t count(int64_t head, int64_t query_block, int64_t key_block) const;

 private:
  BlockLayout(int64_t block_size, int64_t heads, int64_t blocks);

  int64_t block_size_;
  int64_t heads_;
  int64_t blocks_;
  std::vector<int64_t> offsets_;  // heads * blocks + 1
  std::vector<Entry> entries_;
};

}  // namespace remat::kernels
