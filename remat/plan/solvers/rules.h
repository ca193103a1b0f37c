// Schedules by fixed rules, which look at no sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "remat/plan/schedule.h"
#include "remat/plan/solvers/emit.h"

namespace remat::plan {

// Every saved state stays: one plain pass.
Schedule keep_all(int stages);

// Nothing stays but the input: each stage's backward starts from there. Memory
// does not grow with the chain, time as its square.
Schedule recompute_all(int stages);

// Of each stage in `recomputed` only the input stays, as with checkpoint()
// around it; the other saved states stay. The numbers must be those of stages.
Schedule recompute_listed(int stages, const std::vector<bool>& recomputed);

// Segments of floor(stages / segments) stages of which the inputs stay, the
// last one with the rest kept as it is: Chen et al., "Training deep nets with
// sublinear memory cost" (2016). 1 <= segments <= stages.
Schedule equal_segments(int stages, int segments);

// Griewank & Walther, "Algorithm 799: Revolve" (2000): optimal for equal stages
// of which at most `slots` inputs are kept at once, that of the chain counted.
Schedule binomial(int stages, int slots);

// Its part for the stages begin .. end - 1, x_begin being there and one of the
// slots; the loss follows the last stage of the chain.
void add_binomial(Emitter& emitter, int begin, int end, int slots);

// The forwards without saving that it takes: r L - beta(c + 1, r - 1), where
// beta(c, r) = (c + r)! / (c! r!) and r is the least with L <= beta(c, r).
// Saturates at the ends of int64_t. stages, slots >= 1.
int64_t binomial_advances(int64_t stages, int64_t slots);

}  // namespace remat::plan
