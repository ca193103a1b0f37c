#include "remat/runtime/layer_selection.h"

#include <cmath>

#include "remat/base/error.h"

namespace remat {
namespace {

void check_layers(int64_t layers) {
  if (layers < 0) {
    fail_usage("layers", "there are ", layers, " layers; it must be 0 or more");
  }
}

}  // namespace

std::vector<bool> every_nth_layer(int64_t layers, int64_t n) {
  check_layers(layers);
  if (n < 1) {
    fail_usage("layers", "every_n_layers is ", n,
               "; it must be 1 (every layer) or more");
  }
  std::vector<bool> chosen(static_cast<size_t>(layers), false);
  for (int64_t i = 0; i < layers; i += n) {
    chosen[static_cast<size_t>(i)] = true;
  }
  return chosen;
}

std::vector<bool> listed_layers(int64_t layers,
                                const std::vector<int64_t>& indices) {
  check_layers(layers);
  std::vector<bool> chosen(static_cast<size_t>(layers), false);
  for (const int64_t index : indices) {
    if (index < 0 || index >= layers) {
      fail_usage("layers", "layer ", index, " is listed; there are ", layers,
                 " layers, counted from 0");
    }
    if (chosen[static_cast<size_t>(index)]) {
      fail_usage("layers", "layer ", index, " is listed twice");
    }
    chosen[static_cast<size_t>(index)] = true;
  }
  return chosen;
}

std::vector<std::pair<int64_t, int64_t>> equal_segments(int64_t layers,
                                                        int64_t segments) {
  check_layers(layers);
  if (segments < 1 || segments > layers) {
    fail_usage("layers", segments, " segments of ", layers,
               " layers; there must be from 1 to as many as layers");
  }
  const int64_t length = layers / segments;
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (int64_t i = 0; i + 1 < segments; ++i) {
    runs.emplace_back(i * length, (i + 1) * length);
  }
  runs.emplace_back((segments - 1) * length, layers);
  return runs;
}

int64_t square_root_segments(int64_t layers) {
  check_layers(layers);
  const auto root =
      static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(layers))));
  return root < 1 ? 1 : root;
}

namespace detail {

void check_chosen(size_t layers, size_t chosen) {
  if (layers != chosen) {
    fail_usage("layers", "the choice is of ", chosen, " layers; there are ",
               layers);
  }
}

}  // namespace detail

}  // namespace remat
