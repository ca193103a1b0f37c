// Slow, obvious answers to hold the solvers against, and chains to ask about.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>

#include "remat/base/error.h"
#include "remat/plan/chain.h"

namespace remat::plan {

// The text of the error that the action throws.
std::string error_of(const std::function<void()>& action);

// tests/golden/planner/NAME.
nlohmann::json golden(const std::string& name);
// A chain of the golden files: uf, ub, a, abar, of, ob, ub_loss, ob_loss.
Chain golden_chain(const nlohmann::json& entry);

// Stages of one second forward and two backward.
Chain equal_chain(int stages, int64_t output_bytes, int64_t saved_bytes);

struct RandomChain {
  int stages = 4;
  bool temporaries = true;
  int options = 0;
  // Limited by bytes or values; options may put states into them.
  int stores = 0;
};
// Whole seconds from 1 to 9 and sizes from 0 to 5.
Chain random_chain(std::mt19937_64& random, const RandomChain& wanted);

// The fastest plan in which what is kept stays until its backward, by the
// published recurrence with exact constraints, a byte a unit; nothing where no
// such plan fits. For chains without options.
std::optional<int64_t> persistent_seconds(const Chain& chain, int64_t budget);

// The fastest plan at all, by a shortest-path search over what is there:
// anything may be run, kept and dropped at any time, and with `moves` values
// may go to the first store and back. Stores hold what they have room for.
std::optional<int64_t> exhaustive_seconds(const Chain& chain, int64_t budget,
                                          bool moves = false);

}  // namespace remat::plan
