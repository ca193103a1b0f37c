#include "remat/plan/solvers/improve.h"

#include <algorithm>

// Twice as fast with the wider registers; which there are is known at run time.
#if defined(__x86_64__) && defined(__GNUC__)
#define REMAT_WITH_AVX2 __attribute__((target("avx2")))
#endif
#define REMAT_INLINE [[gnu::always_inline]] inline

namespace remat::plan {
namespace {

// Blocks that are looked at together: most candidates improve nothing, so most
// of the time goes into finding that out.
constexpr int kGroup = 16;

REMAT_INLINE float sample(const Part& part, int m) {
  return part.samples[(m - part.from) / kImproveBlock];
}

REMAT_INLINE void add_block(float* __restrict best,
                            const float* __restrict right,
                            const float* __restrict left, float cost,
                            int count) {
  for (int i = 0; i < count; ++i) {
    const float candidate = right[i] + left[i] + cost;
    best[i] = candidate < best[i] ? candidate : best[i];
  }
}

REMAT_INLINE void add_block(float* __restrict best,
                            const float* __restrict right, float cost,
                            int count) {
  for (int i = 0; i < count; ++i) {
    const float candidate = right[i] + cost;
    best[i] = candidate < best[i] ? candidate : best[i];
  }
}

struct Both {
  Part right;
  Part left;
  float cost;

  REMAT_INLINE float bound(int m) const {
    return sample(right, m) + sample(left, m) + cost;
  }
  REMAT_INLINE bool hits(const float* __restrict tops, int last,
                         int32_t* __restrict hit) const {
    const float* r = &right.samples[(last - right.from) / kImproveBlock];
    const float* l = &left.samples[(last - left.from) / kImproveBlock];
    int32_t any = 0;
    for (int i = 0; i < kGroup; ++i) {
      hit[i] = r[i] + l[i] + cost < tops[i] ? 1 : 0;
      any |= hit[i];
    }
    return any != 0;
  }
  REMAT_INLINE float at(int m) const {
    return right.entries[m - right.from] + left.entries[m - left.from] + cost;
  }
  REMAT_INLINE void add(float* best, int m, int count) const {
    add_block(best + m, right.entries + (m - right.from),
              left.entries + (m - left.from), cost, count);
  }
};

struct RightOnly {
  Part right;
  float cost;

  REMAT_INLINE float bound(int m) const { return sample(right, m) + cost; }
  REMAT_INLINE bool hits(const float* __restrict tops, int last,
                         int32_t* __restrict hit) const {
    const float* r = &right.samples[(last - right.from) / kImproveBlock];
    int32_t any = 0;
    for (int i = 0; i < kGroup; ++i) {
      hit[i] = r[i] + cost < tops[i] ? 1 : 0;
      any |= hit[i];
    }
    return any != 0;
  }
  REMAT_INLINE float at(int m) const {
    return right.entries[m - right.from] + cost;
  }
  REMAT_INLINE void add(float* best, int m, int count) const {
    add_block(best + m, right.entries + (m - right.from), cost, count);
  }
};

// Limits of one block.
template <class Sum>
REMAT_INLINE int64_t piece(const Target& target, int32_t origin, int begin,
                           int end, const Sum& sum) {
  if (sum.at(end - 1) >= target.best[begin]) {
    return 0;
  }
  if (end - begin == kImproveBlock) {
    sum.add(target.best, begin, kImproveBlock);
  } else {
    sum.add(target.best, begin, end - begin);
  }
  const int block = begin / kImproveBlock;
  target.tops[block] = target.best[block * kImproveBlock];
  target.origins[block] = origin;
  return end - begin;
}

template <class Sum>
REMAT_INLINE int64_t improve_all(const Target& target, int32_t origin,
                                 int begin, int end, const Sum& sum) {
  constexpr int kFar = kGroup * kImproveBlock;
  int64_t operations = 0;
  int m = begin;
  while (m < end) {
    if (m % kImproveBlock == 0 && m + kFar <= end) {
      int32_t hit[kGroup];
      if (sum.hits(target.tops + m / kImproveBlock, m + kImproveBlock - 1,
                   hit)) {
        for (int i = 0; i < kGroup; ++i) {
          if (hit[i] != 0) {
            const int from = m + i * kImproveBlock;
            operations +=
                piece(target, origin, from, from + kImproveBlock, sum);
          }
        }
      }
      m += kFar;
      continue;
    }
    const int next = std::min(m - m % kImproveBlock + kImproveBlock, end);
    if (sum.bound(next - 1) < target.best[m]) {
      operations += piece(target, origin, m, next, sum);
    }
    m = next;
  }
  return operations;
}

template <class Sum>
int64_t improve_anywhere(const Target& target, int32_t origin, int begin,
                         int end, const Sum& sum) {
  return improve_all(target, origin, begin, end, sum);
}

template <class Sum>
using Improve = int64_t (*)(const Target&, int32_t, int, int, const Sum&);

#ifdef REMAT_WITH_AVX2

template <class Sum>
REMAT_WITH_AVX2 int64_t improve_avx2(const Target& target, int32_t origin,
                                     int begin, int end, const Sum& sum) {
  return improve_all(target, origin, begin, end, sum);
}

template <class Sum>
Improve<Sum> chosen() {
  static const bool kAvx2 = __builtin_cpu_supports("avx2") != 0;
  return kAvx2 ? improve_avx2<Sum> : improve_anywhere<Sum>;
}

#else

template <class Sum>
Improve<Sum> chosen() {
  return improve_anywhere<Sum>;
}

#endif

}  // namespace

int64_t improve(const Target& target, int32_t origin, int begin, int end,
                const Part& right, const Part& left, float cost) {
  return chosen<Both>()(target, origin, begin, end, Both{right, left, cost});
}

int64_t improve(const Target& target, int32_t origin, int begin, int end,
                const Part& right, float cost) {
  return chosen<RightOnly>()(target, origin, begin, end,
                             RightOnly{right, cost});
}

}  // namespace remat::plan
