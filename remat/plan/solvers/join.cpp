#include "remat/plan/solvers/join.h"

#include <algorithm>

namespace remat::plan {

JoinedChain::JoinedChain(const Chain& chain, int together) {
  joined_.input_bytes = chain.input_bytes;
  joined_.loss = chain.loss;
  joined_.fixed_bytes = chain.fixed_bytes;
  joined_.holds_input = chain.holds_input;
  for (int i = 0; i < chain.length(); i += together) {
    const int end = std::min(i + together, chain.length());
    begin_.push_back(i);
    joined_.stages.push_back(join(chain, i, end));
  }
  begin_.push_back(chain.length());
}

Stage JoinedChain::join(const Chain& chain, int begin, int end) const {
  Stage joined;
  joined.name = chain.stages[begin].name;
  joined.output_bytes = chain.value_bytes(end);
  // The most beside x_begin: forward with and without saving, backward.
  int64_t saving = 0;
  int64_t forward = 0;
  int64_t backward = 0;
  for (int i = begin; i < end; ++i) {
    const Stage& stage = chain.stages[i];
    const int64_t input = chain.value_bytes(i);
    joined.forward_seconds += stage.forward_seconds;
    joined.backward_seconds += stage.backward_seconds;
    joined.saved_bytes += stage.saved_bytes;
    saving =
        std::max(saving, joined.saved_bytes + stage.forward_workspace_bytes);
    forward = std::max(forward, (i > begin ? input : 0) + stage.output_bytes +
                                    stage.forward_workspace_bytes);
    backward =
        std::max(backward, joined.saved_bytes + input + stage.output_bytes +
                               stage.backward_workspace_bytes);
  }
  joined.forward_workspace_bytes =
      std::max(saving - joined.saved_bytes, forward - joined.output_bytes);
  joined.backward_workspace_bytes =
      std::max<int64_t>(0, backward - joined.saved_bytes - joined.output_bytes -
                               chain.value_bytes(begin));
  return joined;
}

Schedule JoinedChain::expand(const Schedule& schedule) const {
  Schedule expanded;
  expanded.stages = begin_.back();
  const auto add = [&](ActionKind kind, int stage) {
    expanded.actions.push_back({kind, static_cast<int32_t>(stage)});
  };
  for (const Action& action : schedule.actions) {
    const int begin = begin_[action.stage];
    const int end = action.stage + 1 < static_cast<int>(begin_.size())
                        ? begin_[action.stage + 1]
                        : begin;
    switch (action.kind) {
      case ActionKind::kForwardKeep:
      case ActionKind::kForwardDrop:
        for (int i = begin; i < end; ++i) {
          add(i == begin ? action.kind : ActionKind::kForwardDrop, i);
        }
        break;
      case ActionKind::kForwardSave:
        for (int i = begin; i < end; ++i) {
          add(action.kind, i);
        }
        break;
      case ActionKind::kBackward:
        for (int i = end - 1; i >= begin; --i) {
          add(action.kind, i);
        }
        break;
      default:
        add(action.kind, action.kind == ActionKind::kLoss ? 0 : begin);
    }
  }
  return expanded;
}

}  // namespace remat::plan
