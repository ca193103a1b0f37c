// Graphs to ask about, and what running their nodes one by one really needs.
#pragma once

#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "remat/plan/dag.h"

namespace remat::plan {

// A graph of dag_small.json: its forward half, with the costs and reads of the
// backward half.
Dag golden_dag(const nlohmann::json& entry);

// Whole seconds from 1 to 9, sizes from 0 to 5, links to any earlier node.
Dag random_dag(std::mt19937_64& random, int nodes);
std::vector<int> random_cuts(std::mt19937_64& random, const Dag& dag);

// The most that is there while the nodes of stage i run, from the definition:
// for each node, all that a later one reads. Beside the stage's input, held
// values, and gradients that merely wait.
struct StagePeaks {
  int64_t forward = 0;
  int64_t saving = 0;
  int64_t backward = 0;
};
StagePeaks stage_peaks(const Dag& dag, const GroupedDag& grouped, int i);

// The peak of the schedule run node by node: held values and waiting gradients
// count while they are there.
int64_t node_peak(const Dag& dag, const GroupedDag& grouped,
                  const Schedule& schedule);

// Cost and peak of node actions by the rules of dag_small.json: a value lives
// from its computation to the last one that reads it.
struct GoldenRun {
  int64_t cost = 0;
  int64_t peak = 0;
};
GoldenRun golden_run(const nlohmann::json& entry,
                     const std::vector<NodeAction>& actions);

}  // namespace remat::plan
