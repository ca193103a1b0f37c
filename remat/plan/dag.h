// Models that are no chain: blocks with skip links, encoders and decoders.
//
// A graph of nodes in an order in which they run, and how it becomes a Chain of
// groups of nodes for the solvers. docs/plan-format.md has the file format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "remat/plan/chain.h"
#include "remat/plan/schedule.h"

namespace remat::plan {

// The input of the graph, where a node is asked for.
inline constexpr int kGraphInput = -1;

// One operation: reads values and makes one.
struct DagNode {
  std::string name;
  // Whose values it reads; nodes before it, or kGraphInput. None twice.
  std::vector<int> inputs;
  // Whose values its backward reads: those of nodes up to itself, or
  // kGraphInput.
  std::vector<int> backward_reads;
  double forward_seconds = 0;
  double backward_seconds = 0;
  // The value, and as many bytes again for its gradient while that lives.
  int64_t output_bytes = 0;
  // What a forward with saving leaves for the backward beyond values.
  int64_t saved_bytes = 0;
  // Temporary bytes beyond values, saved bytes and gradients.
  int64_t forward_workspace_bytes = 0;
  int64_t backward_workspace_bytes = 0;
};

struct Dag {
  // In an order in which they can run. The loss reads the last one; each of the
  // others is read by one after it.
  std::vector<DagNode> nodes;
  int64_t input_bytes = 0;
  Loss loss;
  int64_t fixed_bytes = 0;

  int size() const { return static_cast<int>(nodes.size()); }
};

// Throws UsageError that names the node, the field, the value and what would be
// right: no nodes, negative, NaN or infinite numbers, sums beyond 2^60 bytes,
// links that do not lead from an earlier to a later node, values that nobody
// reads.
void validate(const Dag& dag);

// The positions at which one value alone passes from the nodes before to those
// after, the graph's input not counted: cut before each of these nodes, and no
// value skips a stage. Ascending; neither 0 nor size().
std::vector<int> cut_points(const Dag& dag);

// A graph as a chain: stage i is the nodes begin[i] .. begin[i + 1] - 1.
struct GroupedDag {
  Chain chain;
  // The first node of each stage, and the number of nodes.
  std::vector<int> begin;
  // Nodes whose values skip a whole stage. Such a value is computed once and
  // held to the backward of its stage, whatever the plan: its bytes and what
  // its node saves are part of Chain::fixed_bytes, once, and no stage counts
  // them. Ascending.
  std::vector<int> held;
};

// Cuts before the nodes of `cuts`: ascending, each from 1 to size() - 1; none
// makes one stage of it all. x_i of the chain is all that passes only the cut
// before stage i. A stage's numbers are those of its nodes run one by one, with
// each value freed after its last reader; what a schedule of the chain needs on
// paper is never less than what its nodes need. Throws UsageError.
GroupedDag group(const Dag& dag, const std::vector<int>& cuts);

// What to do with a node.
struct NodeAction {
  enum class Kind : uint8_t { kForward, kForwardSave, kLoss, kBackward };
  Kind kind = Kind::kLoss;
  // 0 for the loss.
  int32_t node = 0;

  bool operator==(const NodeAction&) const = default;
};

// A schedule of the chain node by node. Nodes that are held run forward once.
// Moves and releases of the schedule are left out: what is to be kept follows
// from what is read later. Throws Error if the schedule is wrong for the chain.
std::vector<NodeAction> node_actions(const GroupedDag& grouped,
                                     const Schedule& schedule);

// The JSON form, as that of chains.
std::string to_json(const Dag& dag);
Dag dag_from_json(std::string_view text, std::string_view source = "dag");
Dag read_dag(const std::filesystem::path& path);
void write_dag(const std::filesystem::path& path, const Dag& dag);

}  // namespace remat::plan
