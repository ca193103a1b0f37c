// What the code inside a region can know about its run: whether it is the
// first or the recomputation, how deep it is, and the seed of its random
// layers. One context a thread.
#pragma once

#include <cstdint>
#include <optional>

namespace remat {

struct RecomputeContext {
  // True while a region's forward is run again in backward.
  bool recomputing = false;

  // How many regions enclose this point; 0 outside of any.
  int depth = 0;

  // Set inside a SeedScope: random layers then derive their seed from it.
  // Otherwise they draw a fresh seed from ATen's generator.
  std::optional<uint64_t> seed;

  // How many seeds were derived from `seed` so far.
  uint64_t seeds_drawn = 0;
};

// The context of the calling thread.
const RecomputeContext& recompute_context();

// For layers with side effects: count, log or append only when this is false.
bool is_recomputing();

// While it lives, random layers of this thread are functions of
// (seed, layer seed, element): the same masks whatever ran before, in whatever
// grouping into regions. Scopes nest; the innermost counts.
class SeedScope {
 public:
  explicit SeedScope(uint64_t seed);
  ~SeedScope();
  SeedScope(const SeedScope&) = delete;
  SeedScope& operator=(const SeedScope&) = delete;

 private:
  std::optional<uint64_t> outer_seed_;
  uint64_t outer_seeds_drawn_;
};

// The seed for one call of a random layer. Inside a SeedScope it is derived
// from the scope's seed and `layer_seed`, or, without one, from the number of
// such calls before it in the scope. Outside it is drawn from ATen's default
// CPU generator, which a region replays, so torch::manual_seed means what it
// says.
uint64_t next_layer_seed(std::optional<uint64_t> layer_seed = std::nullopt);

}  // namespace remat
