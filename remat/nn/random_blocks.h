// The random key blocks of BigBird's block-sparse attention.
//
// Zaheer et al.: Big Bird: Transformers for Longer Sequences (NeurIPS 2020);
// the drawing in training is that of Hugging Face's BigBirdModel 4.40, which
// uses numpy's legacy generator, number for number.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace remat::nn {

// numpy.random.RandomState, as far as the plans need it.
class NumpyRandom {
 public:
  explicit NumpyRandom(uint32_t seed) : generator_(seed) {}

  uint32_t next() { return static_cast<uint32_t>(generator_()); }

  // Uniform in [0, last], by masked rejection.
  uint32_t interval(uint32_t last);

  // A random order of the values.
  std::vector<int32_t> permutation(std::vector<int32_t> values);

 private:
  std::mt19937 generator_;
};

// Drawn key blocks by [head][query block - 1]: the first and the last query
// block draw none.
using RandomPlan = std::vector<std::vector<std::vector<int32_t>>>;

struct RandomPlanShape {
  int64_t heads = 1;
  int64_t blocks = 1;      // of the sequence with its padding
  int64_t block_size = 1;  // tokens in a block
  int64_t per_query = 0;   // random blocks of a query block
  int64_t max_position_embeddings = 1;
};

// Hugging Face's plan in training: numpy's generator seeded with `seed`, the
// layer's index. Throws UsageError where theirs has too few blocks to draw
// from, naming the query block and the remedy.
RandomPlan draw_numpy_plan(const RandomPlanShape& shape, uint32_t seed);

// Each query block i draws uniformly and without repetition from all blocks but
// the first, the last, i - 1, i and i + 1; all of them where they are too few.
// Counter-based: a list is a function of (seed, head, query block) alone.
RandomPlan draw_philox_plan(const RandomPlanShape& shape, uint64_t seed);

// Hugging Face's plan in evaluation: block 0 each time.
RandomPlan zero_plan(const RandomPlanShape& shape);

// All key blocks of each query block by [head][query block], repeats meant:
// first and last block see all, the others first, last, neighbours and drawn.
std::vector<std::vector<std::vector<int32_t>>> key_block_lists(
    int64_t blocks, const RandomPlan& plan);

}  // namespace remat::nn
