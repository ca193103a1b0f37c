// Many stages in few words.
#pragma once

#include <string>
#include <vector>

namespace remat::plan {

// The names in the order of their first appearance; those that differ in their
// first number alone become one with all numbers: "layer 0", "layer 1",
// "head", "layer 2", "layer 5" -> "layer 0-2, 5 and head".
std::string join_stage_names(const std::vector<std::string>& names);

}  // namespace remat::plan
