// "did you mean ...?"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace remat {

// The candidate nearest to the word (insertions, deletions, replacements and
// swaps of neighbours), or "" where none is near enough to be meant.
std::string nearest(std::string_view word,
                    const std::vector<std::string>& candidates);

// "; did you mean X?" with the prefix before X, or "." where there is none.
std::string did_you_mean(std::string_view word,
                         const std::vector<std::string>& candidates,
                         std::string_view prefix = "");

}  // namespace remat
