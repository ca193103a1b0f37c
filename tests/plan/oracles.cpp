#include "tests/plan/oracles.h"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>

#include "remat/base/file.h"

namespace remat::plan {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;

int64_t whole(double seconds) { return static_cast<int64_t>(seconds); }

class Persistent {
 public:
  explicit Persistent(const Chain& chain) : chain_(chain) {}

  // Forwards s .. t and backwards t .. s with m bytes beside x_s.
  int64_t seconds(int s, int t, int64_t m) {
    if (m < 0) {
      return kNever;
    }
    const auto key = std::make_tuple(s, t, m);
    if (const auto found = known_.find(key); found != known_.end()) {
      return found->second;
    }
    return known_[key] = compute(s, t, m);
  }

 private:
  int64_t value(int i) const {
    return i > chain_.length() ? 0 : chain_.value_bytes(i);
  }

  int64_t compute(int s, int t, int64_t m) {
    const int last = chain_.length();
    if (s == last) {
      return m >= value(last) + chain_.loss.workspace_bytes
                 ? whole(chain_.loss.seconds)
                 : kNever;
    }
    const Stage& stage = chain_.stages[s];
    const int64_t backward = value(s) + value(s + 1) + stage.saved_bytes +
                             stage.backward_workspace_bytes;
    const int64_t saving = stage.saved_bytes + stage.forward_workspace_bytes;
    const int64_t once =
        whole(stage.forward_seconds) + whole(stage.backward_seconds);
    if (s == t) {
      return m >= std::max(value(s + 1) + saving, backward) ? once : kNever;
    }
    int64_t best = kNever;
    if (m >= std::max(value(t + 1) + saving, backward)) {
      best = once + seconds(s + 1, t, m - stage.saved_bytes);
    }
    int64_t forward = 0;
    int64_t peak = 0;
    for (int j = s + 1; j <= t; ++j) {
      const Stage& before = chain_.stages[j - 1];
      forward += whole(before.forward_seconds);
      peak = std::max(peak, value(t + 1) + (j - 1 > s ? value(j - 1) : 0) +
                                value(j) + before.forward_workspace_bytes);
      if (m >= peak) {
        best = std::min(
            best, forward + seconds(j, t, m - value(j)) + seconds(s, j - 1, m));
      }
    }
    return std::min(best, kNever);
  }

  const Chain& chain_;
  std::map<std::tuple<int, int, int64_t>, int64_t> known_;
};

// A state as one number: which values are there, which are in the store, the
// way each saved state is kept (0: not there), and of which value the gradient
// is there (length + 1: before the loss).
class Exhaustive {
 public:
  Exhaustive(const Chain& chain, int64_t budget, bool moves)
      : chain_(chain), length_(chain.length()), budget_(budget), moves_(moves) {
    for (const Stage& stage : chain.stages) {
      ways_.push_back(static_cast<int>(stage.options.size()) + 2);
    }
    int64_t states =
        (int64_t{1} << (length_ + 1) * (moves ? 2 : 1)) * (length_ + 2);
    for (const int ways : ways_) {
      states *= ways;
    }
    time_.assign(states, kNever);
  }

  std::optional<int64_t> run() {
    State start;
    start.values.assign(length_ + 1, false);
    start.values[0] = true;
    start.stored.assign(length_ + 1, false);
    start.saved.assign(length_, 0);
    start.gradient = length_ + 1;
    reach(start, 0, 0);
    while (!queue_.empty()) {
      const auto [time, code] = queue_.top();
      queue_.pop();
      if (time > time_[code]) {
        continue;
      }
      const State state = decode(code);
      if (state.gradient == 0) {
        return time;
      }
      expand(state, time);
    }
    return std::nullopt;
  }

 private:
  struct State {
    std::vector<bool> values;
    std::vector<bool> stored;
    std::vector<int> saved;
    int gradient = 0;
  };

  int64_t encode(const State& state) const {
    int64_t code = state.gradient;
    for (int i = 0; i < length_; ++i) {
      code = code * ways_[i] + state.saved[i];
    }
    for (int i = 0; i <= length_; ++i) {
      code = code * 2 + (state.values[i] ? 1 : 0);
      code = moves_ ? code * 2 + (state.stored[i] ? 1 : 0) : code;
    }
    return code;
  }

  State decode(int64_t code) const {
    State state{std::vector<bool>(length_ + 1), std::vector<bool>(length_ + 1),
                std::vector<int>(length_), 0};
    for (int i = length_; i >= 0; --i) {
      if (moves_) {
        state.stored[i] = code % 2 == 1;
        code /= 2;
      }
      state.values[i] = code % 2 == 1;
      code /= 2;
    }
    for (int i = length_ - 1; i >= 0; --i) {
      state.saved[i] = static_cast<int>(code % ways_[i]);
      code /= ways_[i];
    }
    state.gradient = static_cast<int>(code);
    return state;
  }

  const StageOption* option(int i, int saved) const {
    return saved < 2 ? nullptr : &chain_.stages[i].options[saved - 2];
  }

  int64_t saved_bytes(int i, int saved) const {
    const StageOption* way = option(i, saved);
    return saved == 0 ? 0
           : way      ? way->saved_bytes
                      : chain_.stages[i].saved_bytes;
  }

  int64_t resident(const State& state) const {
    int64_t bytes = chain_.fixed_bytes;
    for (int i = 0; i <= length_; ++i) {
      bytes += state.values[i] ? chain_.value_bytes(i) : 0;
      bytes += i < length_ ? saved_bytes(i, state.saved[i]) : 0;
    }
    return bytes +
           (state.gradient <= length_ ? chain_.value_bytes(state.gradient) : 0);
  }

  bool readable(const State& state, int i) const {
    if (state.values[i] || i == 0) {
      return state.values[i];
    }
    const StageOption* way = option(i - 1, state.saved[i - 1]);
    return state.saved[i - 1] != 0 && (way == nullptr || way->holds_output);
  }

  bool stores_hold(const State& state) const {
    std::vector<int64_t> bytes(chain_.stores.size());
    std::vector<int64_t> values(chain_.stores.size());
    for (int i = 0; i <= length_; ++i) {
      if (state.stored[i]) {
        bytes[0] += chain_.value_bytes(i);
        ++values[0];
      }
      const StageOption* way =
          i < length_ ? option(i, state.saved[i]) : nullptr;
      if (way != nullptr && way->store >= 0) {
        bytes[way->store] += way->stored_bytes;
        ++values[way->store];
      }
    }
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] > chain_.stores[i].capacity_bytes ||
          values[i] > chain_.stores[i].capacity_values) {
        return false;
      }
    }
    return true;
  }

  void reach(const State& state, int64_t time, int64_t peak) {
    if (peak > budget_ || !stores_hold(state)) {
      return;
    }
    const int64_t code = encode(state);
    if (time < time_[code]) {
      time_[code] = time;
      queue_.emplace(time, code);
    }
  }

  void expand(const State& state, int64_t time) {
    const int64_t bytes = resident(state);
    for (int i = 0; i < length_; ++i) {
      if (readable(state, i)) {
        forwards(state, time, bytes, i);
      }
      if (state.saved[i] != 0) {
        State next = state;
        next.saved[i] = 0;
        reach(next, time, 0);
      }
    }
    for (int i = chain_.holds_input ? 1 : 0; i <= length_; ++i) {
      if (state.values[i]) {
        State next = state;
        next.values[i] = false;
        reach(next, time, 0);
      }
    }
    for (int i = 0; i <= length_ && moves_; ++i) {
      move(state, time, bytes, i);
    }
    const int last = state.gradient - 1;
    if (last == length_ && readable(state, last)) {
      State next = state;
      next.gradient = length_;
      next.values[length_] = false;
      reach(next, time + whole(chain_.loss.seconds),
            bytes + chain_.value_bytes(length_) + chain_.loss.workspace_bytes);
    } else if (last < length_ && state.saved[last] != 0 &&
               readable(state, last)) {
      backward(state, time, bytes, last);
    }
  }

  void move(const State& state, int64_t time, int64_t bytes, int i) {
    const Store& store = chain_.stores[0];
    const int64_t size = chain_.value_bytes(i);
    State next = state;
    if (state.stored[i]) {
      next.stored[i] = false;
      reach(next, time, 0);
      next.stored[i] = true;
      next.values[i] = true;
      if (!state.values[i]) {
        reach(next, time + whole(read_seconds(store, size)), bytes + size);
      }
    } else if (readable(state, i)) {
      next.stored[i] = true;
      reach(next, time + whole(write_seconds(store, size)), 0);
    }
  }

  void forwards(const State& state, int64_t time, int64_t bytes, int i) {
    const Stage& stage = chain_.stages[i];
    const int64_t after = time + whole(stage.forward_seconds);
    if (!state.values[i + 1]) {
      State next = state;
      next.values[i + 1] = true;
      reach(next, after,
            bytes + stage.output_bytes + stage.forward_workspace_bytes);
    }
    if (state.saved[i] != 0) {
      return;
    }
    for (int saved = 1; saved < ways_[i]; ++saved) {
      const StageOption* way = option(i, saved);
      State next = state;
      next.saved[i] = saved;
      if (way == nullptr) {
        reach(next, after,
              bytes + stage.saved_bytes + stage.forward_workspace_bytes);
        continue;
      }
      const bool apart = !way->holds_output;
      if (apart && state.values[i + 1]) {
        continue;
      }
      next.values[i + 1] = apart || state.values[i + 1];
      reach(next, after + whole(way->extra_forward_seconds),
            bytes + way->saved_bytes + (apart ? stage.output_bytes : 0) +
                way->forward_workspace_bytes);
    }
  }

  void backward(const State& state, int64_t time, int64_t bytes, int i) {
    const Stage& stage = chain_.stages[i];
    const StageOption* way = option(i, state.saved[i]);
    State next = state;
    next.gradient = i;
    next.saved[i] = 0;
    next.values[i] = i == 0 && chain_.holds_input;
    reach(next,
          time + whole(stage.backward_seconds) +
              (way ? whole(way->extra_backward_seconds) : 0),
          bytes + chain_.value_bytes(i) +
              (way ? way->backward_workspace_bytes
                   : stage.backward_workspace_bytes));
  }

  const Chain& chain_;
  const int length_;
  const int64_t budget_;
  const bool moves_;
  std::vector<int> ways_;
  std::vector<int64_t> time_;
  std::priority_queue<std::pair<int64_t, int64_t>,
                      std::vector<std::pair<int64_t, int64_t>>, std::greater<>>
      queue_;
};

template <class Value>
Value pick(std::mt19937_64& random, Value least, Value most) {
  return std::uniform_int_distribution<Value>(least, most)(random);
}

}  // namespace

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

nlohmann::json golden(const std::string& name) {
  return nlohmann::json::parse(
      read_file(std::string(REMAT_GOLDEN_DIR) + "/planner/" + name));
}

Chain golden_chain(const nlohmann::json& entry) {
  Chain chain;
  chain.input_bytes = entry["a"][0];
  chain.loss.seconds = entry.value("ub_loss", 0);
  chain.loss.workspace_bytes = entry.value("ob_loss", 0);
  for (size_t i = 0; i < entry["uf"].size(); ++i) {
    Stage stage;
    stage.forward_seconds = entry["uf"][i];
    stage.backward_seconds = entry["ub"][i];
    stage.output_bytes = entry["a"][i + 1];
    stage.saved_bytes = entry["abar"][i];
    stage.forward_workspace_bytes = entry["of"][i];
    stage.backward_workspace_bytes = entry["ob"][i];
    chain.stages.push_back(stage);
  }
  return chain;
}

Chain equal_chain(int stages, int64_t output_bytes, int64_t saved_bytes) {
  Stage stage;
  stage.forward_seconds = 1;
  stage.backward_seconds = 2;
  stage.output_bytes = output_bytes;
  stage.saved_bytes = saved_bytes;
  Chain chain;
  chain.input_bytes = output_bytes;
  chain.stages.assign(stages, stage);
  return chain;
}

Chain random_chain(std::mt19937_64& random, const RandomChain& wanted) {
  const auto temporary = [&]() -> int64_t {
    return wanted.temporaries ? std::max<int64_t>(0, pick(random, -6, 12)) : 0;
  };
  Chain chain;
  chain.input_bytes = pick(random, 0, 5);
  chain.fixed_bytes = pick(random, 0, 1) * 7;
  chain.loss.seconds = pick(random, 0, 3);
  chain.loss.workspace_bytes = temporary();
  for (int i = 0; i < wanted.stores; ++i) {
    Store store{.name = str("store ", i)};
    (pick(random, 0, 1) == 0 ? store.capacity_values : store.capacity_bytes) =
        pick(random, 0, 8);
    store.write_seconds = pick(random, 0, 3);
    store.read_seconds = pick(random, 0, 3);
    chain.stores.push_back(store);
  }
  for (int i = 0; i < wanted.stages; ++i) {
    Stage stage;
    stage.forward_seconds = pick(random, 1, 9);
    stage.backward_seconds = pick(random, 1, 9);
    stage.output_bytes = pick(random, 0, 5);
    stage.saved_bytes = stage.output_bytes + pick(random, 0, 6);
    stage.forward_workspace_bytes = temporary();
    stage.backward_workspace_bytes = temporary();
    for (int k = 0; k < wanted.options; ++k) {
      StageOption option;
      option.holds_output = pick(random, 0, 1) == 1;
      option.saved_bytes =
          pick<int64_t>(random, option.holds_output ? stage.output_bytes : 0,
                        stage.saved_bytes);
      option.extra_forward_seconds = pick(random, 0, 3);
      option.extra_backward_seconds = pick(random, 0, 3);
      option.forward_workspace_bytes = temporary();
      option.backward_workspace_bytes = temporary();
      if (wanted.stores > 0) {
        option.store = pick(random, -1, wanted.stores - 1);
        option.stored_bytes = option.store < 0 ? 0 : pick(random, 0, 6);
      }
      stage.options.push_back(option);
    }
    chain.stages.push_back(stage);
  }
  return chain;
}

std::optional<int64_t> persistent_seconds(const Chain& chain, int64_t budget) {
  const int64_t seconds = Persistent(chain).seconds(
      0, chain.length(), budget - chain.fixed_bytes - chain.input_bytes);
  return seconds >= kNever ? std::nullopt : std::optional(seconds);
}

std::optional<int64_t> exhaustive_seconds(const Chain& chain, int64_t budget,
                                          bool moves) {
  return Exhaustive(chain, budget, moves).run();
}

}  // namespace remat::plan
