#include "tests/plan/dag_oracles.h"

#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>

namespace remat::plan {
namespace {

// Questions about a grouped graph, each answered by looking at all nodes.
class Asked {
 public:
  Asked(const Dag& dag, const GroupedDag& grouped)
      : dag_(dag), grouped_(grouped) {}

  int begin(int i) const { return grouped_.begin[i]; }
  int end(int i) const { return grouped_.begin[i + 1]; }
  int stage_of(int v) const {
    int i = 0;
    while (v >= end(i)) {
      ++i;
    }
    return i;
  }
  bool held(int u) const {
    return std::count(grouped_.held.begin(), grouped_.held.end(), u) > 0;
  }
  bool reads(int v, int u) const { return has(dag_.nodes[v].inputs, u); }
  bool backward_reads(int v, int u) const {
    return has(dag_.nodes[v].backward_reads, u);
  }
  bool any(int from, int to, const std::function<bool(int)>& test) const {
    for (int v = from; v < to; ++v) {
      if (test(v)) {
        return true;
      }
    }
    return false;
  }
  // Of stage i, and part of x_{i+1}.
  bool passes(int u) const {
    const int after = end(stage_of(u));
    return !held(u) &&
           (u == dag_.size() - 1 || any(after, dag_.size(), [&](int v) {
              return reads(v, u) || backward_reads(v, u);
            }));
  }
  bool kept(int u) const {
    const int i = stage_of(u);
    return !held(u) && (passes(u) || any(begin(i), end(i), [&](int v) {
                          return backward_reads(v, u);
                        }));
  }

  // While node v of a forward runs.
  int64_t forward_bytes(int v, bool saving) const {
    const int i = stage_of(v);
    int64_t bytes = dag_.nodes[v].forward_workspace_bytes;
    for (int u = begin(i); u <= v; ++u) {
      const bool there = u == v || passes(u) || (saving && kept(u)) ||
                         any(v, end(i), [&](int w) { return reads(w, u); });
      bytes += there && !held(u) ? dag_.nodes[u].output_bytes : 0;
      bytes += saving && !held(u) ? dag_.nodes[u].saved_bytes : 0;
    }
    return bytes;
  }

  // Of the saved state of its stage while the backward of v runs.
  int64_t saved_bytes(int v) const {
    const int i = stage_of(v);
    int64_t bytes = 0;
    for (int u = begin(i); u < end(i); ++u) {
      if (held(u)) {
        continue;
      }
      const bool read =
          any(begin(i), end(i), [&](int w) { return backward_reads(w, u); });
      const bool later = read ? any(begin(i), v + 1,
                                    [&](int w) { return backward_reads(w, u); })
                              : u <= v;
      bytes += kept(u) && later ? dag_.nodes[u].output_bytes : 0;
      bytes += u <= v ? dag_.nodes[u].saved_bytes : 0;
    }
    return bytes;
  }

  // The gradient of u (kGraphInput: of the input) while the backward of v runs.
  bool gradient(int u, int v) const {
    return u <= v && ((u == dag_.size() - 1) ||
                      any(v, dag_.size(), [&](int w) { return reads(w, u); }));
  }

  int64_t size(int u) const {
    return u == kGraphInput ? dag_.input_bytes : dag_.nodes[u].output_bytes;
  }

 private:
  static bool has(const std::vector<int>& all, int one) {
    return std::count(all.begin(), all.end(), one) > 0;
  }

  const Dag& dag_;
  const GroupedDag& grouped_;
};

}  // namespace

StagePeaks stage_peaks(const Dag& dag, const GroupedDag& grouped, int i) {
  const Asked asked(dag, grouped);
  StagePeaks peaks;
  for (int v = asked.begin(i); v < asked.end(i); ++v) {
    peaks.forward = std::max(peaks.forward, asked.forward_bytes(v, false));
    peaks.saving = std::max(peaks.saving, asked.forward_bytes(v, true));
    int64_t bytes =
        asked.saved_bytes(v) + dag.nodes[v].backward_workspace_bytes;
    for (int u = kGraphInput; u < dag.size(); ++u) {
      const bool home = u == kGraphInput ? i == 0 : asked.stage_of(u) == i;
      // Begun by this stage, or one of its own: others merely wait.
      const bool begun_here = !asked.any(
          asked.end(i), dag.size(), [&](int w) { return asked.reads(w, u); });
      bytes += asked.gradient(u, v) && (home || begun_here) ? asked.size(u) : 0;
    }
    peaks.backward = std::max(peaks.backward, bytes);
  }
  return peaks;
}

int64_t node_peak(const Dag& dag, const GroupedDag& grouped,
                  const Schedule& schedule) {
  const Asked asked(dag, grouped);
  const Chain& chain = grouped.chain;
  std::vector<bool> value(chain.length() + 1, false);
  std::vector<bool> saved(chain.length(), false);
  std::set<int> held;
  bool loss = false;
  int64_t peak = 0;
  // Without the saved state of `but`.
  const auto resident = [&](int but) {
    int64_t bytes = dag.fixed_bytes + dag.input_bytes;
    for (int i = 1; i <= chain.length(); ++i) {
      bytes += value[i] ? chain.value_bytes(i) : 0;
    }
    for (int i = 0; i < chain.length(); ++i) {
      bytes += saved[i] && i != but ? chain.stages[i].saved_bytes : 0;
    }
    for (const int u : held) {
      bytes += dag.nodes[u].output_bytes + dag.nodes[u].saved_bytes;
    }
    return bytes;
  };
  // Of the gradients, once `done` is the last node whose backward has run.
  int done = dag.size();
  const auto gradients = [&](int running) {
    int64_t bytes = 0;
    for (int u = kGraphInput; loss && u < running; ++u) {
      bytes += asked.gradient(u, running) ? asked.size(u) : 0;
    }
    return bytes;
  };
  const auto waiting = [&] {
    int64_t bytes = 0;
    for (int u = kGraphInput; loss && u < done; ++u) {
      const bool there =
          u == dag.size() - 1 ||
          asked.any(done, dag.size(), [&](int w) { return asked.reads(w, u); });
      bytes += there ? asked.size(u) : 0;
    }
    return bytes;
  };
  for (const Action& action : schedule.actions) {
    const int i = action.stage;
    switch (action.kind) {
      case ActionKind::kForwardSave:
      case ActionKind::kForwardKeep:
      case ActionKind::kForwardDrop: {
        const bool saving = action.kind == ActionKind::kForwardSave;
        for (int v = asked.begin(i); v < asked.end(i); ++v) {
          if (asked.held(v)) {
            held.insert(v);
          }
          peak = std::max(
              peak, resident(-1) + waiting() + asked.forward_bytes(v, saving));
        }
        saved[i] = saved[i] || saving;
        value[i + 1] = value[i + 1] || !saving;
        if (action.kind == ActionKind::kForwardDrop) {
          value[i] = false;
        }
        break;
      }
      case ActionKind::kLoss:
        loss = true;
        peak =
            std::max(peak, resident(-1) + waiting() + dag.loss.workspace_bytes);
        value[chain.length()] = false;
        break;
      case ActionKind::kBackward:
        for (int v = asked.end(i) - 1; v >= asked.begin(i); --v) {
          peak = std::max(peak, resident(i) + asked.saved_bytes(v) +
                                    gradients(v + 1) +
                                    dag.nodes[v].backward_workspace_bytes);
          done = v;
          held.erase(v);
        }
        value[i] = saved[i] = false;
        break;
      case ActionKind::kFree:
        value[i] = false;
        break;
      default:
        throw std::logic_error("schedules of graphs move nothing");
    }
  }
  return peak;
}

Dag golden_dag(const nlohmann::json& entry) {
  const int n = entry["n"];
  Dag dag;
  for (int v = 0; v < n / 2; ++v) {
    DagNode node;
    node.name = "node " + std::to_string(v);
    node.forward_seconds = entry["cost"][v];
    node.backward_seconds = entry["cost"][n - 1 - v];
    node.output_bytes = entry["mem"][v];
    for (const auto& edge : entry["edges"]) {
      const int from = edge[0];
      if (edge[1] == v) {
        node.inputs.push_back(from);
      } else if (edge[1] == n - 1 - v && from < n / 2) {
        node.backward_reads.push_back(from);
      }
    }
    if (node.inputs.empty()) {
      node.inputs = {kGraphInput};
    }
    dag.nodes.push_back(node);
  }
  return dag;
}

Dag random_dag(std::mt19937_64& random, int nodes) {
  const auto pick = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  Dag dag;
  dag.input_bytes = pick(0, 5);
  dag.fixed_bytes = pick(0, 3);
  dag.loss = {.seconds = double(pick(0, 3)), .workspace_bytes = pick(0, 4)};
  std::vector<bool> read(nodes, false);
  for (int v = 0; v < nodes; ++v) {
    DagNode node;
    node.name = "node " + std::to_string(v);
    for (int u = kGraphInput; u < v; ++u) {
      // Every value is read; skips are rarer than links to the neighbour.
      const bool last_chance = u >= 0 && v == nodes - 1 && !read[u];
      if (last_chance || pick(0, u == v - 1 ? 1 : 3) == 0) {
        node.inputs.push_back(u);
        if (u >= 0) {
          read[u] = true;
        }
      }
      if (pick(0, 3) == 0) {
        node.backward_reads.push_back(u);
      }
    }
    if (pick(0, 1) == 0) {
      node.backward_reads.push_back(v);
    }
    node.forward_seconds = double(pick(1, 9));
    node.backward_seconds = double(pick(1, 9));
    node.output_bytes = pick(0, 5);
    node.saved_bytes = std::max<int64_t>(0, pick(-3, 4));
    node.forward_workspace_bytes = std::max<int64_t>(0, pick(-6, 9));
    node.backward_workspace_bytes = std::max<int64_t>(0, pick(-6, 9));
    dag.nodes.push_back(node);
  }
  return dag;
}

std::vector<int> random_cuts(std::mt19937_64& random, const Dag& dag) {
  std::vector<int> cuts;
  for (int i = 1; i < dag.size(); ++i) {
    if (random() % 2 == 0) {
      cuts.push_back(i);
    }
  }
  return cuts;
}

GoldenRun golden_run(const nlohmann::json& entry,
                     const std::vector<NodeAction>& actions) {
  const int n = entry["n"];
  std::vector<int> sequence;
  for (const NodeAction& action : actions) {
    if (action.kind == NodeAction::Kind::kBackward) {
      sequence.push_back(n - 1 - action.node);
    } else if (action.kind != NodeAction::Kind::kLoss) {
      sequence.push_back(action.node);
    }
  }
  // When each computed value is read last.
  std::vector<size_t> until(sequence.size());
  std::vector<int> latest(n, -1);
  for (size_t step = 0; step < sequence.size(); ++step) {
    for (const auto& edge : entry["edges"]) {
      if (edge[1] == sequence[step]) {
        const int from = latest[edge[0].get<int>()];
        if (from < 0) {
          throw std::logic_error("a node runs before what it reads");
        }
        until[from] = step;
      }
    }
    until[step] = step;
    latest[sequence[step]] = static_cast<int>(step);
  }
  GoldenRun run;
  for (size_t step = 0; step < sequence.size(); ++step) {
    run.cost += entry["cost"][sequence[step]].get<int64_t>();
    int64_t bytes = 0;
    for (size_t value = 0; value <= step; ++value) {
      bytes += until[value] >= step
                   ? entry["mem"][sequence[value]].get<int64_t>()
                   : 0;
    }
    run.peak = std::max(run.peak, bytes);
  }
  return run;
}

}  // namespace remat::plan
