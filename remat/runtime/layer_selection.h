// Which layers of a stack are recomputed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace remat {

// Hugging Face's every_n_layers: the first layer, the (n+1)-st, ... of
// `layers`. Throws UsageError for n < 1 or layers < 0.
std::vector<bool> every_nth_layer(int64_t layers, int64_t n);

// Those of the list, from 0 on. Throws UsageError for an index outside of the
// stack, or one that stands twice.
std::vector<bool> listed_layers(int64_t layers,
                                const std::vector<int64_t>& indices);

// [begin, end) of each of `segments` runs of floor(layers / segments) layers;
// the last takes the rest. Throws UsageError for fewer than one segment, or
// more than there are layers.
std::vector<std::pair<int64_t, int64_t>> equal_segments(int64_t layers,
                                                        int64_t segments);

// So many that inputs of segments and layers in one are about as many: about
// the square root of `layers`, at least 1.
int64_t square_root_segments(int64_t layers);

namespace detail {
// Throws UsageError unless they are equal.
void check_chosen(size_t layers, size_t chosen);
}  // namespace detail

}  // namespace remat
