#include "remat/plan/simulator.h"

#include <algorithm>
#include <numeric>

#include "remat/base/error.h"

namespace remat::plan {
namespace {

constexpr int kNone = -1;

class Machine {
 public:
  explicit Machine(const Chain& chain)
      : chain_(chain),
        length_(chain.length()),
        has_value_(length_ + 1, false),
        saved_way_(length_, kNone),
        forwards_(length_, 0),
        stored_(chain.stores.size(), std::vector<bool>(length_ + 1, false)),
        stored_bytes_(chain.stores.size(), 0),
        stored_values_(chain.stores.size(), 0) {
    run_.stores.resize(chain.stores.size());
    bytes_of(Use::kFixed) = chain.fixed_bytes;
    add_value(0);
  }

  void step(int number, const Action& action, bool with_timeline) {
    number_ = number;
    action_ = &action;
    during_ = {};
    const double start = run_.seconds;
    // The most is there while the action runs; what it releases goes after.
    const auto before = bytes_;
    perform(action);
    Moment moment{.start_seconds = start, .end_seconds = run_.seconds};
    for (int use = 0; use < kUses; ++use) {
      moment.bytes[use] = before[use] + during_[use];
    }
    moment.total_bytes =
        std::accumulate(moment.bytes.begin(), moment.bytes.end(), int64_t{0});
    if (moment.total_bytes > run_.peak_bytes) {
      run_.peak_bytes = moment.total_bytes;
      run_.peak_action = number;
    }
    if (with_timeline) {
      run_.timeline.push_back(moment);
    }
  }

  Run finish() {
    if (gradient_ != 0) {
      fail("plan", "the schedule ends before ",
           gradient_ == kNone ? std::string("the loss")
                              : str("the backward of stage ", gradient_ - 1));
    }
    for (const int count : forwards_) {
      run_.recomputed.push_back(count - 1);
    }
    return std::move(run_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    const Action& action = *action_;
    fail("plan", "step ", number_, " (", name_of(action.kind),
         action.kind == ActionKind::kLoss ? "" : str(" ", action.stage),
         "): ", parts...);
  }

  int64_t& bytes_of(Use use) { return bytes_[static_cast<size_t>(use)]; }
  void while_running(Use use, int64_t bytes) {
    during_[static_cast<size_t>(use)] += bytes;
  }

  void perform(const Action& action) {
    const bool of_value = action.kind >= ActionKind::kStore &&
                          action.kind != ActionKind::kFreeSaved;
    if (action.kind != ActionKind::kLoss &&
        (action.stage < 0 || action.stage >= length_ + (of_value ? 1 : 0))) {
      refuse("the chain has ", length_, " stages, counted from 0");
    }
    switch (action.kind) {
      case ActionKind::kForwardSave:
        return forward_save(action.stage, action.way);
      case ActionKind::kForwardKeep:
        return forward(action.stage, /*keep=*/true);
      case ActionKind::kForwardDrop:
        return forward(action.stage, /*keep=*/false);
      case ActionKind::kLoss:
        return loss();
      case ActionKind::kBackward:
        return backward(action.stage);
      case ActionKind::kStore:
        return store(action.stage, check_store(action.store));
      case ActionKind::kFetch:
        return fetch(action.stage, check_store(action.store));
      case ActionKind::kFree:
        return free_value(action.stage);
      case ActionKind::kFreeSaved:
        if (saved_way_[action.stage] == kNone) {
          refuse("no saved state of the stage is there");
        }
        return drop_saved(action.stage);
      case ActionKind::kFreeStored:
        return free_stored(action.stage, check_store(action.store));
    }
    refuse("unknown action ", static_cast<int>(action.kind));
  }

  // x_i can be read: as a value, or from the saved state of stage i - 1.
  bool readable(int i) const {
    if (has_value_[i]) {
      return true;
    }
    if (i == 0 || saved_way_[i - 1] == kNone) {
      return false;
    }
    const int way = saved_way_[i - 1];
    return way == 0 || chain_.stages[i - 1].options[way - 1].holds_output;
  }

  void need(int i) const {
    if (!readable(i)) {
      refuse("needs x_", i, ", which is not on the device");
    }
  }

  void add_value(int i) {
    has_value_[i] = true;
    bytes_of(Use::kValues) += chain_.value_bytes(i);
  }

  void drop_value(int i) {
    has_value_[i] = false;
    bytes_of(Use::kValues) -= chain_.value_bytes(i);
  }

  void refuse_present(int i) const {
    if (has_value_[i]) {
      refuse("x_", i, " is on the device already");
    }
  }

  void count_forward(int i) {
    const double seconds = chain_.stages[i].forward_seconds;
    run_.seconds += seconds;
    if (forwards_[i] > 0) {
      run_.recompute_seconds += seconds;
    }
    ++forwards_[i];
  }

  void forward(int i, bool keep) {
    need(i);
    refuse_present(i + 1);
    if (!keep && i == 0 && chain_.holds_input) {
      refuse("the input of the chain is held and cannot be released");
    }
    while_running(Use::kWorkspace, chain_.stages[i].forward_workspace_bytes);
    while_running(Use::kValues, chain_.value_bytes(i + 1));
    count_forward(i);
    add_value(i + 1);
    if (!keep && has_value_[i]) {
      drop_value(i);
    }
  }

  void forward_save(int i, int way) {
    need(i);
    const Stage& stage = chain_.stages[i];
    const int ways = static_cast<int>(stage.options.size()) + 1;
    if (way < 0 || way >= ways) {
      refuse("way ", way, " is unknown; the stage has ", ways,
             ", counted from 0");
    }
    if (saved_way_[i] != kNone) {
      refuse("the saved state of the stage is there already");
    }
    saved_way_[i] = way;
    count_forward(i);
    if (way == 0) {
      while_running(Use::kSaved, stage.saved_bytes);
      while_running(Use::kWorkspace, stage.forward_workspace_bytes);
      bytes_of(Use::kSaved) += stage.saved_bytes;
      return;
    }
    const StageOption& option = stage.options[way - 1];
    while_running(Use::kSaved, option.saved_bytes);
    while_running(Use::kWorkspace, option.forward_workspace_bytes);
    bytes_of(Use::kSaved) += option.saved_bytes;
    if (!option.holds_output) {
      refuse_present(i + 1);
      while_running(Use::kValues, chain_.value_bytes(i + 1));
      add_value(i + 1);
    }
    if (option.store != kNone) {
      occupy(option.store, option.stored_bytes);
    }
    run_.seconds += option.extra_forward_seconds;
    run_.option_seconds += option.extra_forward_seconds;
  }

  void drop_saved(int i) {
    const Stage& stage = chain_.stages[i];
    const int way = saved_way_[i];
    saved_way_[i] = kNone;
    if (way == 0) {
      bytes_of(Use::kSaved) -= stage.saved_bytes;
      return;
    }
    const StageOption& option = stage.options[way - 1];
    bytes_of(Use::kSaved) -= option.saved_bytes;
    if (option.store != kNone) {
      vacate(option.store, option.stored_bytes);
    }
  }

  void loss() {
    if (gradient_ != kNone) {
      refuse("the loss has been computed");
    }
    need(length_);
    while_running(Use::kGradient, chain_.value_bytes(length_));
    while_running(Use::kWorkspace, chain_.loss.workspace_bytes);
    run_.seconds += chain_.loss.seconds;
    gradient_ = length_;
    bytes_of(Use::kGradient) = chain_.value_bytes(length_);
    if (has_value_[length_]) {
      drop_value(length_);
    }
  }

  void backward(int i) {
    if (gradient_ != i + 1) {
      refuse("needs the gradient of x_", i + 1, "; ",
             gradient_ == kNone ? std::string("the loss has not been computed")
                                : str("that of x_", gradient_, " is there"));
    }
    const int way = saved_way_[i];
    if (way == kNone) {
      refuse("the saved state of the stage is not there");
    }
    need(i);
    const Stage& stage = chain_.stages[i];
    while_running(Use::kGradient, chain_.value_bytes(i));
    run_.seconds += stage.backward_seconds;
    if (way == 0) {
      while_running(Use::kWorkspace, stage.backward_workspace_bytes);
    } else {
      const StageOption& option = stage.options[way - 1];
      while_running(Use::kWorkspace, option.backward_workspace_bytes);
      run_.seconds += option.extra_backward_seconds;
      run_.option_seconds += option.extra_backward_seconds;
    }
    drop_saved(i);
    if (has_value_[i]) {
      drop_value(i);
    }
    gradient_ = i;
    bytes_of(Use::kGradient) = chain_.value_bytes(i);
  }

  int check_store(int store) const {
    if (store < 0 || store >= static_cast<int>(chain_.stores.size())) {
      refuse("the chain has ", chain_.stores.size(),
             " stores, counted from 0; there is no store ", store);
    }
    return store;
  }

  void occupy(int store, int64_t bytes) {
    const Store& limits = chain_.stores[store];
    stored_bytes_[store] += bytes;
    stored_values_[store] += 1;
    if (stored_bytes_[store] > limits.capacity_bytes ||
        stored_values_[store] > limits.capacity_values) {
      refuse("store ", store, " (", limits.name, ") would hold ",
             stored_bytes_[store], " bytes in ", stored_values_[store],
             " values; it has room for ",
             limits.capacity_bytes != kUnlimited
                 ? str(limits.capacity_bytes, " bytes")
                 : str(limits.capacity_values, " values"));
    }
    StoreUse& use = run_.stores[store];
    ++use.writes;
    use.peak_bytes = std::max(use.peak_bytes, stored_bytes_[store]);
    use.peak_values = std::max(use.peak_values, stored_values_[store]);
  }

  void vacate(int store, int64_t bytes) {
    stored_bytes_[store] -= bytes;
    stored_values_[store] -= 1;
  }

  void store(int i, int to) {
    need(i);
    if (stored_[to][i]) {
      refuse("x_", i, " is in the store already");
    }
    stored_[to][i] = true;
    occupy(to, chain_.value_bytes(i));
    move(write_seconds(chain_.stores[to], chain_.value_bytes(i)));
  }

  void fetch(int i, int from) {
    if (!stored_[from][i]) {
      refuse("x_", i, " is not in the store");
    }
    refuse_present(i);
    ++run_.stores[from].reads;
    while_running(Use::kValues, chain_.value_bytes(i));
    add_value(i);
    move(read_seconds(chain_.stores[from], chain_.value_bytes(i)));
  }

  void move(double seconds) {
    run_.seconds += seconds;
    run_.transfer_seconds += seconds;
  }

  void free_value(int i) {
    if (!has_value_[i]) {
      refuse("x_", i, " is not on the device as a value of its own");
    }
    if (i == 0 && chain_.holds_input) {
      refuse("the input of the chain is held and cannot be released");
    }
    drop_value(i);
  }

  void free_stored(int i, int from) {
    if (!stored_[from][i]) {
      refuse("x_", i, " is not in the store");
    }
    stored_[from][i] = false;
    vacate(from, chain_.value_bytes(i));
  }

  const Chain& chain_;
  const int length_;
  int number_ = 0;
  const Action* action_ = nullptr;
  std::vector<bool> has_value_;
  std::vector<int> saved_way_;
  // Of which x_i the gradient is there.
  int gradient_ = kNone;
  std::vector<int> forwards_;
  std::vector<std::vector<bool>> stored_;
  std::vector<int64_t> stored_bytes_;
  std::vector<int64_t> stored_values_;
  std::array<int64_t, kUses> bytes_ = {};
  std::array<int64_t, kUses> during_ = {};
  Run run_;
};

}  // namespace

std::string_view name_of(Use use) {
  constexpr std::array<std::string_view, kUses> kNames = {
      "fixed", "values", "saved", "gradient", "workspace"};
  return kNames[static_cast<size_t>(use)];
}

Run simulate(const Chain& chain, const Schedule& schedule, bool with_timeline) {
  if (schedule.stages != chain.length()) {
    fail("plan", "the schedule is for ", schedule.stages,
         " stages; the chain has ", chain.length());
  }
  Machine machine(chain);
  for (size_t i = 0; i < schedule.actions.size(); ++i) {
    machine.step(static_cast<int>(i), schedule.actions[i], with_timeline);
  }
  return machine.finish();
}

}  // namespace remat::plan
