// Chains of unequal stages, for plans of every kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

#include "remat/plan/chain.h"

namespace remat {

inline plan::Chain random_chain(std::mt19937_64& random, size_t stages) {
  const auto between = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  plan::Chain chain;
  chain.input_bytes = between(0, 4);
  for (size_t i = 0; i < stages; ++i) {
    plan::Stage stage;
    stage.forward_seconds = static_cast<double>(between(1, 9));
    stage.backward_seconds = static_cast<double>(between(1, 9));
    stage.output_bytes = between(1, 5);
    stage.saved_bytes = stage.output_bytes + between(0, 5);
    chain.stages.push_back(stage);
  }
  return chain;
}

}  // namespace remat
