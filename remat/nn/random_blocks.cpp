#include "remat/nn/random_blocks.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "remat/base/error.h"
#include "remat/base/philox.h"

namespace remat::nn {
namespace {

using Blocks = std::vector<int32_t>;

RandomPlan empty_plan(const RandomPlanShape& shape) {
  const auto rows = static_cast<size_t>(std::max<int64_t>(shape.blocks - 2, 0));
  return RandomPlan(static_cast<size_t>(shape.heads),
                    std::vector<Blocks>(rows));
}

Blocks range(int64_t begin, int64_t end) {
  Blocks blocks(static_cast<size_t>(std::max<int64_t>(end - begin, 0)));
  std::iota(blocks.begin(), blocks.end(), static_cast<int32_t>(begin));
  return blocks;
}

// Lengths for which Hugging Face draws from (nearly) the whole sequence.
bool draws_from_all(int64_t length) {
  return length == 1024 || length == 3072 || length == 4096;
}

// What query block i draws from at those lengths: Python's slices of the
// blocks 1 .. all - 2, with their bounds as published.
Blocks candidates_of(int64_t i, int64_t all, int64_t block_size) {
  const int64_t last = 1024 > 2 * block_size ? 1024 / block_size - 1 : all - 1;
  const int64_t size = all - 2;
  const auto slice = [&](int64_t begin, int64_t end) {
    return range(std::min(begin, size) + 1, std::min(end, size) + 1);
  };
  if (i == 1 || i == 2) {
    return slice(i + 1, last);
  }
  const int64_t start = i - 2, end = i;
  if (i == all - 3 || i == all - 2 || start > last) {
    return slice(0, last);
  }
  Blocks blocks = slice(0, start);
  const Blocks rest = slice(end + 1, last);
  blocks.insert(blocks.end(), rest.begin(), rest.end());
  return blocks;
}

RandomPlan draw_from_all(const RandomPlanShape& shape, NumpyRandom& random) {
  const int64_t all = shape.max_position_embeddings / shape.block_size;
  const auto wanted = static_cast<size_t>(shape.per_query);
  RandomPlan plan = empty_plan(shape);
  for (auto& head : plan) {
    // Rows past the end of the sequence are drawn as well, and dropped.
    for (int64_t i = 1; i < all - 1; ++i) {
      Blocks drawn =
          random.permutation(candidates_of(i, all, shape.block_size));
      // numpy's assignment spreads a single value over the row.
      if (drawn.size() == 1) {
        drawn.resize(wanted, drawn.front());
      }
      if (drawn.size() < wanted) {
        fail_usage("bigbird", "cannot draw ", wanted,
                   " random blocks for query block ", i, " from ", drawn.size(),
                   " candidates with block_size ", shape.block_size,
                   "; take a smaller block_size or num_random_blocks, or "
                   "random_blocks \"philox\"");
      }
      drawn.resize(wanted);
      if (static_cast<size_t>(i) <= head.size()) {
        head[static_cast<size_t>(i) - 1] = std::move(drawn);
      }
    }
  }
  return plan;
}

RandomPlan draw_from_first(const RandomPlanShape& shape, NumpyRandom& random) {
  const int64_t all = 2 * shape.per_query + 5;
  RandomPlan plan = empty_plan(shape);
  // The row of the last query block is drawn as well, and dropped.
  for (int64_t row = 1; row < shape.blocks; ++row) {
    const auto is_candidate = [&](int32_t block) {
      return std::abs(block - row) > 1 && block != 0 && block != all - 1 &&
             !(row == 1 && block == all - 2) && !(row == all - 2 && block == 1);
    };
    for (auto& head : plan) {
      Blocks drawn;
      for (const int32_t block : random.permutation(range(0, all))) {
        if (static_cast<int64_t>(drawn.size()) < shape.per_query &&
            is_candidate(block)) {
          drawn.push_back(block);
        }
      }
      if (row < shape.blocks - 1) {
        head[static_cast<size_t>(row) - 1] = std::move(drawn);
      }
    }
  }
  return plan;
}

// Words of Philox for one (head, query block).
class PhiloxStream {
 public:
  PhiloxStream(uint64_t seed, uint32_t head, uint32_t query_block)
      : key_(philox_key(seed)), counter_{0, head, query_block, 0xB10C5EED} {}

  // Uniform in [0, count), but for a bias below count / 2^32.
  uint32_t below(uint32_t count) {
    if (used_ == words_.size()) {
      words_ = philox4x32(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return static_cast<uint32_t>(uint64_t{words_[used_++]} * count >> 32);
  }

 private:
  PhiloxKey key_;
  PhiloxCounter counter_;
  PhiloxCounter words_{};
  size_t used_ = 4;
};

}  // namespace

uint32_t NumpyRandom::interval(uint32_t last) {
  uint32_t mask = last;
  for (int shift = 1; shift < 32; shift *= 2) {
    mask |= mask >> shift;
  }
  uint32_t value = 0;
  // numpy draws nothing for a single value.
  while (mask != 0 && (value = next() & mask) > last) {
  }
  return value;
}

std::vector<int32_t> NumpyRandom::permutation(std::vector<int32_t> values) {
  for (size_t i = values.size(); i-- > 1;) {
    std::swap(values[i], values[interval(static_cast<uint32_t>(i))]);
  }
  return values;
}

RandomPlan draw_numpy_plan(const RandomPlanShape& shape, uint32_t seed) {
  NumpyRandom random(seed);
  return draws_from_all(shape.blocks * shape.block_size)
             ? draw_from_all(shape, random)
             : draw_from_first(shape, random);
}

RandomPlan draw_philox_plan(const RandomPlanShape& shape, uint64_t seed) {
  RandomPlan plan = empty_plan(shape);
  for (size_t head = 0; head < plan.size(); ++head) {
    for (size_t row = 0; row < plan[head].size(); ++row) {
      const int64_t i = static_cast<int64_t>(row) + 1;
      Blocks blocks = range(1, shape.blocks - 1);
      std::erase_if(blocks, [&](int32_t b) { return std::abs(b - i) <= 1; });
      PhiloxStream random(seed, static_cast<uint32_t>(head),
                          static_cast<uint32_t>(i));
      const auto count =
          std::min(blocks.size(), static_cast<size_t>(shape.per_query));
      for (size_t k = 0; k < count; ++k) {
        const auto left = static_cast<uint32_t>(blocks.size() - k);
        std::swap(blocks[k], blocks[k + random.below(left)]);
      }
      blocks.resize(count);
      plan[head][row] = std::move(blocks);
    }
  }
  return plan;
}

RandomPlan zero_plan(const RandomPlanShape& shape) {
  RandomPlan plan = empty_plan(shape);
  for (auto& head : plan) {
    for (Blocks& row : head) {
      row.assign(static_cast<size_t>(shape.per_query), 0);
    }
  }
  return plan;
}

std::vector<std::vector<std::vector<int32_t>>> key_block_lists(
    int64_t blocks, const RandomPlan& plan) {
  std::vector<std::vector<Blocks>> lists;
  const auto last = static_cast<int32_t>(blocks) - 1;
  for (const auto& rows : plan) {
    std::vector<Blocks>& head = lists.emplace_back();
    for (int32_t i = 0; i <= last; ++i) {
      if (i == 0 || i == last) {
        head.push_back(range(0, blocks));
        continue;
      }
      // Next to an end of the sequence the end is also a neighbour: once.
      Blocks list{0};
      for (int32_t near = std::max(i - 1, 1); near <= std::min(i + 1, last - 1);
           ++near) {
        list.push_back(near);
      }
      list.push_back(last);
      const Blocks& drawn = rows[static_cast<size_t>(i) - 1];
      list.insert(list.end(), drawn.begin(), drawn.end());
      head.push_back(std::move(list));
    }
  }
  return lists;
}

}  // namespace remat::nn
