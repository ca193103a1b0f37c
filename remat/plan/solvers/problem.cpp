#include "remat/plan/solvers/problem.h"

#include <algorithm>
#include <bit>
#include <map>

namespace remat::plan {
namespace {

// Everything of a stage that a recurrence sees, its input included.
std::vector<int64_t> contents(const Problem& problem, const Stage& stage,
                              int i) {
  std::vector<int64_t> all = {problem.value[i], problem.value[i + 1],
                              std::bit_cast<int64_t>(stage.forward_seconds),
                              std::bit_cast<int64_t>(stage.backward_seconds),
                              problem.forward_workspace[i]};
  for (const Keep& keep : problem.keeps[i + 1]) {
    all.insert(all.end(),
               {keep.right_bytes, keep.left_bytes, keep.workspace_bytes,
                std::bit_cast<int64_t>(keep.extra_seconds),
                problem.backward_bytes[i][keep.variant]});
  }
  return all;
}

}  // namespace

Problem::Problem(const Chain& chain)
    : length(chain.length()),
      value(length + 2, 0),
      prefix(length + 1, 0),
      forward_workspace(length + 1, 0),
      keeps(length + 1),
      backward_bytes(length + 1) {
  for (int i = 0; i <= length; ++i) {
    value[i] = chain.value_bytes(i);
  }
  base_bytes = chain.fixed_bytes + value[0];
  for (int i = 0; i < length; ++i) {
    const Stage& stage = chain.stages[i];
    prefix[i + 1] = prefix[i] + stage.forward_seconds;
    forward_workspace[i] = stage.forward_workspace_bytes;
    std::vector<int64_t>& variants = backward_bytes[i];
    variants.push_back(0);
    const auto variant_of = [&](int64_t workspace) {
      const int64_t bytes = value[i] + value[i + 1] + workspace;
      auto found = std::find(variants.begin() + 1, variants.end(), bytes);
      if (found == variants.end()) {
        found = variants.insert(variants.end(), bytes);
      }
      return static_cast<int16_t>(found - variants.begin());
    };
    std::vector<Keep>& ways = keeps[i + 1];
    ways.push_back({.way = 0,
                    .variant = variant_of(stage.backward_workspace_bytes),
                    .right_bytes = stage.saved_bytes,
                    .left_bytes = stage.saved_bytes,
                    .workspace_bytes = stage.forward_workspace_bytes});
    for (const StageOption& option : stage.options) {
      const int64_t beside = option.holds_output ? 0 : stage.output_bytes;
      ways.push_back({.way = static_cast<int16_t>(ways.size()),
                      .variant = variant_of(option.backward_workspace_bytes),
                      .holds_output = option.holds_output,
                      .right_bytes = option.saved_bytes + beside,
                      .left_bytes = option.saved_bytes,
                      .workspace_bytes = option.forward_workspace_bytes,
                      .extra_seconds = option.extra_forward_seconds +
                                       option.extra_backward_seconds});
    }
  }
  backward_bytes[length] = {0, value[length] + chain.loss.workspace_bytes};

  std::map<std::vector<int64_t>, int> seen;
  for (int i = 0; i < length; ++i) {
    kind.push_back(
        seen.emplace(contents(*this, chain.stages[i], i), seen.size())
            .first->second);
  }
  kind.push_back(static_cast<int>(seen.size()));
}

int64_t alone_bytes(const Problem& problem, int s, const Keep& keep) {
  return std::max(
      problem.value[s + 1] + keep.right_bytes + keep.workspace_bytes,
      keep.left_bytes + problem.backward_bytes[s][keep.variant]);
}

int64_t loss_bytes(const Problem& problem) {
  return problem.backward_bytes[problem.length][1];
}

}  // namespace remat::plan
