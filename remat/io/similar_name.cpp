#include "remat/io/similar_name.h"

#include <algorithm>
#include <numeric>

namespace remat::io {
namespace {

// Names in a broken file may be huge; the distance takes the product.
constexpr size_t kMaxLength = 256;
constexpr size_t kMaxCandidates = 10'000;

size_t levenshtein_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string similar_name(std::string_view name,
                         const std::vector<std::string>& candidates) {
  std::string best;
  if (name.size() > kMaxLength) {
    return best;
  }
  size_t best_distance = name.size() / 3 + 1;
  const size_t count = std::min(candidates.size(), kMaxCandidates);
  for (size_t i = 0; i < count; ++i) {
    if (candidates[i].size() > kMaxLength) {
      continue;
    }
    const size_t distance = levenshtein_distance(name, candidates[i]);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidates[i];
    }
  }
  return best;
}

}  // namespace remat::io
