#include "remat/kernels/block_layout.h"

#include <algorithm>
#include <limits>
#include <map>

#include "remat/base/error.h"

namespace remat::kernels {

BlockLayout::BlockLayout(int64_t block_size, int64_t heads, int64_t blocks)
    : block_size_(block_size), heads_(heads), blocks_(blocks) {
  if (block_size < 1 || heads < 1 || blocks < 1) {
    fail_usage("block layout", "block size ", block_size, ", ", heads,
               " heads, ", blocks, " blocks: each must be at least 1");
  }
  if (blocks > std::numeric_limits<int32_t>::max()) {
    fail_usage("block layout", blocks, " blocks do not fit 32 bits");
  }
  offsets_.reserve(heads * blocks + 1);
  offsets_.push_back(0);
}

BlockLayout::BlockLayout(
    int64_t block_size,
    const std::vector<std::vector<std::vector<int32_t>>>& lists)
    : BlockLayout(block_size, static_cast<int64_t>(lists.size()),
                  lists.empty() ? 0 : static_cast<int64_t>(lists[0].size())) {
  for (int64_t head = 0; head < heads_; ++head) {
    if (static_cast<int64_t>(lists[head].size()) != blocks_) {
      fail_usage("block layout", "head ", head, " lists ", lists[head].size(),
                 " query blocks, head 0 lists ", blocks_);
    }
    for (int64_t block = 0; block < blocks_; ++block) {
      std::map<int32_t, int32_t> counts;
      for (const int32_t key_block : lists[head][block]) {
        if (key_block < 0 || key_block >= blocks_) {
          fail_usage("block layout", "head ", head, ", query block ", block,
                     " lists key block ", key_block, ", outside [0, ", blocks_,
                     ")");
        }
        ++counts[key_block];
      }
      if (counts.empty()) {
        fail_usage("block layout", "head ", head, ", query block ", block,
                   " sees no key block");
      }
      for (const auto& [key_block, count] : counts) {
        entries_.push_back({key_block, count});
      }
      offsets_.push_back(static_cast<int64_t>(entries_.size()));
    }
  }
}

BlockLayout BlockLayout::dense(int64_t block_size, int64_t heads,
                               int64_t blocks) {
  BlockLayout layout(block_size, heads, blocks);
  layout.entries_.reserve(heads * blocks * blocks);
  for (int64_t list = 0; list < heads * blocks; ++list) {
    for (int64_t key_block = 0; key_block < blocks; ++key_block) {
      layout.entries_.push_back({static_cast<int32_t>(key_block), 1});
    }
    layout.offsets_.push_back(static_cast<int64_t>(layout.entries_.size()));
  }
  return layout;
}

int32_t BlockLayout::count(int64_t head, int64_t query_block,
                           int64_t key_block) const {
  const Entry* last = end(head, query_block);
  const Entry* found =
      std::lower_bound(begin(head, query_block), last, key_block,
                       [](const Entry& entry, int64_t wanted) {
                         return entry.key_block < wanted;
                       });
  return found != last && found->key_block == key_block ? found->count : 0;
}

}  // namespace remat::kernels
