#include "remat/base/suggest.h"

#include <algorithm>

#include "remat/base/error.h"

namespace remat {
namespace {

// Names from a broken file may be huge, and the table is their product.
constexpr size_t kMaxLength = 256;
constexpr size_t kMaxCandidates = 10'000;

size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table: a swap looks back two.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1),
      row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    last[j] = j;
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1,
                         last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string nearest(std::string_view word,
                    const std::vector<std::string>& candidates) {
  std::string best;
  if (word.size() > kMaxLength) {
    return best;
  }
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  const size_t count = std::min(candidates.size(), kMaxCandidates);
  for (size_t i = 0; i < count; ++i) {
    const std::string& candidate = candidates[i];
    if (candidate.size() > kMaxLength) {
      continue;
    }
    // A shortened name is meant, however much is missing.
    const bool is_start = word.size() >= 4 && candidate.starts_with(word);
    const size_t distance = is_start ? 1 : edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word,
                         const std::vector<std::string>& candidates,
                         std::string_view prefix) {
  const std::string found = nearest(word, candidates);
  return found.empty() ? "." : str("; did you mean ", prefix, found, "?");
}

}  // namespace remat
