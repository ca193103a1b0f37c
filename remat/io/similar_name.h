// What a user may have meant by a name that does not exist.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace remat::io {

// The candidate nearest to the name by Levenshtein distance, if a third of its
// letters or fewer differ; otherwise empty.
std::string similar_name(std::string_view name,
                         const std::vector<std::string>& candidates);

}  // namespace remat::io
