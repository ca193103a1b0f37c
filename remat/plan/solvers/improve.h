// The inner loop of the time table, where all of its time goes.
#pragma once

#include <cstdint>

namespace remat::plan {

// Limits that are looked at together, and share a sample.
inline constexpr int kImproveBlock = 32;

// A row of the table, read at limits: entry m - from for the limit m. Its
// samples are the last entries of each block: what a block can give at most is
// known from them, without reading the row itself.
struct Part {
  const float* entries = nullptr;
  const float* samples = nullptr;
  int from = 0;
};

// The row in the making, from limit 0 on; it falls with the limit.
struct Target {
  float* best = nullptr;
  // The first of each block of `best`.
  float* tops = nullptr;
  // The boundary that improved each block last.
  int32_t* origins = nullptr;
};

// best[m] = min(best[m], cost + right + left) for the limits begin <= m < end,
// except in blocks of which the ends show that nothing can improve. `origin` is
// noted in the others. Returns how many entries were computed.
int64_t improve(const Target& target, int32_t origin, int begin, int end,
                const Part& right, const Part& left, float cost);

// The same for a `left` that is the same for all m, and part of the cost.
int64_t improve(const Target& target, int32_t origin, int begin, int end,
                const Part& right, float cost);

}  // namespace remat::plan
