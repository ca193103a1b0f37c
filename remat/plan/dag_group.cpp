// A graph as a chain of groups of nodes, and back.
#include <algorithm>

#include "remat/base/error.h"
#include "remat/plan/dag.h"
#include "remat/plan/simulator.h"

namespace remat::plan {
namespace {

constexpr int kNone = -1;

// Who reads a value, as nodes.
struct Readers {
  // The last one that reads it in its forward: its backward is the first to add
  // to the gradient.
  int last_forward = kNone;
  // The last one of its own stage that does, and the first one of its own stage
  // that reads it in its backward, which is the last to run.
  int last_forward_at_home = kNone;
  int first_backward_at_home = kNone;
  // The last one of all.
  int last = kNone;
};

class Grouping {
 public:
  Grouping(const Dag& dag, const std::vector<int>& cuts)
      : dag_(dag), readers_(dag.nodes.size()) {
    std::vector<int>& begin = grouped_.begin;
    begin.push_back(0);
    for (const int cut : cuts) {
      if (cut <= begin.back() || cut >= dag.size()) {
        fail_usage("plan", "cuts names node ", cut, " after ", begin.back(),
                   "; they rise, from 1 to the last node, ", dag.size() - 1);
      }
      begin.push_back(cut);
    }
    begin.push_back(dag.size());
    stages_ = static_cast<int>(begin.size()) - 1;
    for (int i = 0; i < stages_; ++i) {
      stage_of_.insert(stage_of_.end(), begin[i + 1] - begin[i], i);
    }
    find_readers();
  }

  GroupedDag run() {
    Chain& chain = grouped_.chain;
    chain.input_bytes = dag_.input_bytes;
    chain.fixed_bytes = dag_.fixed_bytes;
    chain.loss = dag_.loss;
    hold();
    int64_t forwards_wait = 0;
    int64_t backwards_wait = 0;
    for (int i = 0; i < stages_; ++i) {
      forwards_wait += forward_waits_[i];
      backwards_wait += backward_waits_[i];
      chain.stages.push_back(stage(i, forwards_wait, backwards_wait));
    }
    validate(chain);
    return std::move(grouped_);
  }

 private:
  void find_readers() {
    for (int v = 0; v < dag_.size(); ++v) {
      for (const int u : dag_.nodes[v].inputs) {
        if (u == kGraphInput) {
          last_of_input_ = v;
          continue;
        }
        readers_[u].last = readers_[u].last_forward = v;
        if (stage_of_[u] == stage_of_[v]) {
          readers_[u].last_forward_at_home = v;
        }
      }
      for (const int u : dag_.nodes[v].backward_reads) {
        if (u == kGraphInput) {
          continue;
        }
        Readers& readers = readers_[u];
        readers.last = v;
        if (stage_of_[u] == stage_of_[v] &&
            readers.first_backward_at_home == kNone) {
          readers.first_backward_at_home = v;
        }
      }
    }
  }

  int stage_of(int node) const { return node < 0 ? kNone : stage_of_[node]; }

  void hold() {
    held_.assign(dag_.nodes.size(), false);
    forward_waits_.assign(stages_ + 1, 0);
    backward_waits_.assign(stages_ + 1, 0);
    for (int u = 0; u < dag_.size(); ++u) {
      if (stage_of(readers_[u].last) > stage_of_[u] + 1) {
        held_[u] = true;
        grouped_.held.push_back(u);
        grouped_.chain.fixed_bytes +=
            dag_.nodes[u].output_bytes + dag_.nodes[u].saved_bytes;
        wait(stage_of_[u], stage_of(readers_[u].last_forward),
             dag_.nodes[u].output_bytes);
      }
    }
    wait(0, stage_of(last_of_input_), dag_.input_bytes);
  }

  // The gradient of a value of stage `home` is there from the backward of stage
  // `last` on. The chain knows nothing of it, so that it is workspace of what
  // runs meanwhile: backwards between the two, and forwards of any stage before
  // `last` that run again. It is counted in their first run as well.
  void wait(int home, int last, int64_t bytes) {
    if (last > home) {
      forward_waits_[0] += bytes;
      forward_waits_[last] -= bytes;
      backward_waits_[home + 1] += bytes;
      backward_waits_[last] -= bytes;
    }
  }

  // Part of the value that the chain passes on.
  bool passes(int u) const {
    return !held_[u] &&
           (stage_of(readers_[u].last) > stage_of_[u] || u + 1 == dag_.size());
  }

  // What is there beside the stage's input and held values: at most, and at the
  // end.
  struct Forward {
    int64_t most = 0;
    int64_t left = 0;
  };

  Forward forward(int begin, int end, bool saving) const {
    Forward run;
    std::vector<int64_t> freed_after(end - begin, 0);
    for (int v = begin; v < end; ++v) {
      const DagNode& node = dag_.nodes[v];
      const Readers& readers = readers_[v];
      if (!held_[v]) {
        run.left += node.output_bytes + (saving ? node.saved_bytes : 0);
        if (!passes(v) &&
            !(saving && readers.first_backward_at_home != kNone)) {
          freed_after[std::max(v, readers.last_forward_at_home) - begin] +=
              node.output_bytes;
        }
      }
      run.most = std::max(run.most, run.left + node.forward_workspace_bytes);
      run.left -= freed_after[v - begin];
    }
    return run;
  }

  // The most while the stage's backwards run, beside its input and held values:
  // what is left of the saved state, and gradients.
  int64_t backward(int i, int64_t saved) const {
    const int begin = grouped_.begin[i];
    const int end = grouped_.begin[i + 1];
    int64_t gradients =
        i == 0 && stage_of(last_of_input_) > 0 ? dag_.input_bytes : 0;
    std::vector<int64_t> freed_after(end - begin, 0);
    for (int u = begin; u < end; ++u) {
      const DagNode& node = dag_.nodes[u];
      const Readers& readers = readers_[u];
      if (stage_of(readers.last_forward) > i || u + 1 == dag_.size()) {
        gradients += node.output_bytes;
      }
      if (!held_[u]) {
        freed_after[u - begin] += node.saved_bytes;
        if (readers.first_backward_at_home != kNone) {
          freed_after[readers.first_backward_at_home - begin] +=
              node.output_bytes;
        } else if (passes(u)) {
          freed_after[u - begin] += node.output_bytes;
        }
      }
    }
    int64_t most = 0;
    for (int v = end - 1; v >= begin; --v) {
      const DagNode& node = dag_.nodes[v];
      for (const int u : node.inputs) {
        const int last =
            u == kGraphInput ? last_of_input_ : readers_[u].last_forward;
        if (last == v) {
          gradients +=
              u == kGraphInput ? dag_.input_bytes : dag_.nodes[u].output_bytes;
        }
      }
      most = std::max(most, saved + gradients + node.backward_workspace_bytes);
      saved -= freed_after[v - begin];
      gradients -= node.output_bytes;
    }
    return most;
  }

  Stage stage(int i, int64_t forwards_wait, int64_t backwards_wait) const {
    const int begin = grouped_.begin[i];
    const int end = grouped_.begin[i + 1];
    Stage stage;
    stage.name = dag_.nodes[begin].name;
    if (end - begin > 1) {
      stage.name += " .. " + dag_.nodes[end - 1].name;
    }
    for (int v = begin; v < end; ++v) {
      stage.forward_seconds += dag_.nodes[v].forward_seconds;
      stage.backward_seconds += dag_.nodes[v].backward_seconds;
    }
    const Forward plain = forward(begin, end, /*saving=*/false);
    const Forward saving = forward(begin, end, /*saving=*/true);
    stage.output_bytes = plain.left;
    stage.saved_bytes = saving.left;
    const int64_t plainly = plain.most - plain.left + forwards_wait;
    const int64_t with_saving = saving.most - saving.left + forwards_wait;
    stage.forward_workspace_bytes = std::max(plainly, with_saving);
    const int64_t input =
        i == 0 ? dag_.input_bytes : grouped_.chain.stages[i - 1].output_bytes;
    stage.backward_workspace_bytes =
        std::max<int64_t>(
            0, backward(i, saving.left) - saving.left - plain.left - input) +
        backwards_wait;
    if (plainly > with_saving) {
      // A stage has one number for both runs. What is temporary without saving
      // is mostly the saved state itself: this way does not count it twice.
      stage.options.push_back(
          {.name = "save",
           .saved_bytes = stage.saved_bytes,
           .holds_output = true,
           .forward_workspace_bytes = with_saving,
           .backward_workspace_bytes = stage.backward_workspace_bytes});
    }
    return stage;
  }

  const Dag& dag_;
  GroupedDag grouped_;
  int stages_ = 0;
  std::vector<int> stage_of_;
  std::vector<Readers> readers_;
  int last_of_input_ = kNone;
  std::vector<bool> held_;
  // By stage, as differences to the one before.
  std::vector<int64_t> forward_waits_;
  std::vector<int64_t> backward_waits_;
};

}  // namespace

GroupedDag group(const Dag& dag, const std::vector<int>& cuts) {
  validate(dag);
  return Grouping(dag, cuts).run();
}

std::vector<NodeAction> node_actions(const GroupedDag& grouped,
                                     const Schedule& schedule) {
  simulate(grouped.chain, schedule, /*with_timeline=*/false);
  using Kind = NodeAction::Kind;
  std::vector<NodeAction> actions;
  std::vector<bool> held(grouped.begin.back(), false);
  for (const int node : grouped.held) {
    held[node] = true;
  }
  std::vector<bool> ran(grouped.begin.back(), false);
  const auto forward = [&](int stage, Kind kind) {
    for (int v = grouped.begin[stage]; v < grouped.begin[stage + 1]; ++v) {
      if (!held[v]) {
        actions.push_back({kind, v});
      } else if (!ran[v]) {
        actions.push_back({Kind::kForwardSave, v});
        ran[v] = true;
      }
    }
  };
  for (const Action& action : schedule.actions) {
    switch (action.kind) {
      case ActionKind::kForwardSave:
        forward(action.stage, Kind::kForwardSave);
        break;
      case ActionKind::kForwardKeep:
      case ActionKind::kForwardDrop:
        forward(action.stage, Kind::kForward);
        break;
      case ActionKind::kLoss:
        actions.push_back({Kind::kLoss, 0});
        break;
      case ActionKind::kBackward:
        for (int v = grouped.begin[action.stage + 1] - 1;
             v >= grouped.begin[action.stage]; --v) {
          actions.push_back({Kind::kBackward, v});
        }
        break;
      default:
        break;
    }
  }
  return actions;
}

}  // namespace remat::plan
