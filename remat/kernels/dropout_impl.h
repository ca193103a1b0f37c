// Dropout for one instruction set; included by the source of each. Only
// integers, one comparison and one product: the same bits with each of them.
//
// Nothing of the standard library in here and internal linkage everywhere, for
// the reason given in simd.h.
#pragma once

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "remat/kernels/dropout_kernel.h"

namespace remat::kernels {
namespace {

#ifdef __AVX2__
constexpr int kCounterLanes = 4;
#else
constexpr int kCounterLanes = 2;
#endif

// A word of Philox of several counters: the low half of each lane. What stands
// in the high half does not matter.
typedef uint64_t PhiloxWords __attribute__((vector_size(8 * kCounterLanes)));

inline PhiloxWords multiply_low_halves(PhiloxWords a, PhiloxWords b) {
#if defined(__AVX2__)
  return (PhiloxWords)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (PhiloxWords)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF);
#endif
}

// Vectors of counters in flight, to hide the time that a product takes.
constexpr int kCounterVectors = 2;
constexpr int kGroup = 4 * kCounterVectors * kCounterLanes;
// Words made at a time: they stay in the first-level cache.
constexpr int kBatch = 16 * kGroup;

// philox4x32 (remat/base/philox.h) of consecutive counters, as they follow one
// another: words[4 i + j] is word j of counter first + i.
inline void philox_group(uint64_t first, uint64_t seed, uint32_t* words) {
  const PhiloxWords zero{};
  const PhiloxWords multiplier0 = zero + 0xD2511F53u;
  const PhiloxWords multiplier1 = zero + 0xCD9E8D57u;
  const PhiloxWords weyl0 = zero + 0x9E3779B9u;
  const PhiloxWords weyl1 = zero + 0xBB67AE85u;
#ifdef __AVX2__
  const PhiloxWords lanes = {0, 1, 2, 3};
#else
  const PhiloxWords lanes = {0, 1};
#endif
  PhiloxWords word[kCounterVectors][4];
  for (int i = 0; i < kCounterVectors; ++i) {
    const PhiloxWords counter = lanes + (first + i * kCounterLanes);
    word[i][0] = counter;
    word[i][1] = counter >> 32;
    word[i][2] = word[i][3] = zero;
  }
  PhiloxWords key0 = zero + seed, key1 = zero + (seed >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 4
    for (int i = 0; i < kCounterVectors; ++i) {
      const PhiloxWords product0 = multiply_low_halves(word[i][0], multiplier0);
      const PhiloxWords product1 = multiply_low_halves(word[i][2], multiplier1);
      word[i][0] = (product1 >> 32) ^ word[i][1] ^ key0;
      word[i][1] = product1;
      word[i][2] = (product0 >> 32) ^ word[i][3] ^ key1;
      word[i][3] = product0;
    }
    key0 += weyl0;
    key1 += weyl1;
  }
  for (int i = 0; i < kCounterVectors; ++i) {
    const PhiloxWords low = (word[i][0] & 0xFFFFFFFF) | (word[i][1] << 32);
    const PhiloxWords high = (word[i][2] & 0xFFFFFFFF) | (word[i][3] << 32);
#ifdef __AVX2__
    const PhiloxWords front = __builtin_shufflevector(low, high, 0, 4, 1, 5);
    const PhiloxWords back = __builtin_shufflevector(low, high, 2, 6, 3, 7);
#else
    const PhiloxWords front = __builtin_shufflevector(low, high, 0, 2);
    const PhiloxWords back = __builtin_shufflevector(low, high, 1, 3);
#endif
    uint32_t* ordered = words + i * 4 * kCounterLanes;
    __builtin_memcpy(ordered, &front, sizeof(front));
    __builtin_memcpy(ordered + 2 * kCounterLanes, &back, sizeof(back));
  }
}

// Not inlined: compilers would take the words apart instead of storing them.
[[gnu::noinline]] void philox_batch(uint64_t first, uint64_t seed,
                                    uint32_t* words, int64_t count) {
  for (int64_t i = 0; i < count; i += kGroup) {
    philox_group(first + i / 4, seed, words + i);
  }
}

template <class T>
void dropout_run(const DropoutMask& mask, T scale, const T* source, T* target,
                 int64_t begin, int64_t end) {
  // 2^32 is above every word: nothing is kept.
  const bool none = mask.threshold >> 32 != 0;
  const T kept = none ? T{0} : scale;
  const uint32_t threshold = none ? 0 : static_cast<uint32_t>(mask.threshold);
  uint32_t words[kBatch];
  for (int64_t i = begin; i < end; i += kBatch) {
    const int64_t count = end - i < kBatch ? end - i : kBatch;
    philox_batch(static_cast<uint64_t>(i / 4), mask.seed, words, count);
    for (int64_t j = 0; j < count; ++j) {
      target[i + j] = source[i + j] * (words[j] >= threshold ? kept : T{0});
    }
  }
}

}  // namespace
}  // namespace remat::kernels
