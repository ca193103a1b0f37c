// Philox4x32-10, a counter-based generator of random numbers: a number is a
// function of (key, counter), so it can be computed again in any order and by
// any thread.
//
// Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3
// (SC 2011); constants and rounds as in Random123.
#pragma once

#include <array>
#include <cstdint>

namespace remat {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

// Ten rounds of Philox4x32 on the counter.
constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

// The key of a 64-bit seed: low word first.
constexpr PhiloxKey philox_key(uint64_t seed) {
  return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
}

// A new seed from a seed and the number of one of its children: different
// children give unrelated seeds.
constexpr uint64_t derive_seed(uint64_t seed, uint64_t child) {
  // The last counter word keeps these apart from the elements of a tensor.
  const PhiloxCounter random =
      philox4x32({static_cast<uint32_t>(child),
                  static_cast<uint32_t>(child >> 32), 0, 0x5EED5EED},
                 philox_key(seed));
  return random[0] | uint64_t{random[1]} << 32;
}

}  // namespace remat
