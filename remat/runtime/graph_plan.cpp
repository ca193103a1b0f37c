#include "remat/runtime/graph_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/runtime/operator_tape.h"

namespace remat {

std::string GraphPlan::describe() const {
  return remat::str(
      segments,
      segments == 1 ? " segment: " : " segments: ", format_bytes(held_bytes),
      " held at the cuts, ", format_bytes(largest_segment_bytes),
      " in the largest segment; ", format_bytes(plain_bytes), " plain");
}

namespace detail {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;
// More places for cuts than that cost time and gain little.
constexpr size_t kMostCuts = 1000;
// How many limits for a segment are tried.
constexpr int kLimits = 48;

// A value from the block that makes it to the last block that reads it.
struct Span {
  size_t made;
  size_t last_read;
  int64_t bytes;
  bool can_be_cut;
};

// The forward as blocks of operators, with a possible cut after each but the
// last.
struct Blocks {
  std::vector<size_t> end;               // operators [previous end, end)
  std::vector<int64_t> saved_bytes;      // up to and with the block
  std::vector<std::vector<Span>> spans;  // made in the block, read later

  size_t size() const { return end.size(); }
  int64_t saved_in(size_t first, size_t last) const {
    return saved_bytes[last] - (first == 0 ? 0 : saved_bytes[first - 1]);
  }
};

std::vector<Span> spans_of(const OperatorTape& tape) {
  std::vector<Span> spans(tape.values().size(), Span{0, 0, 0, false});
  for (size_t id = 0; id < spans.size(); ++id) {
    const TapedValue& value = tape.values()[id];
    if (value.can_be_computed()) {
      spans[id] = {value.producer, value.producer, value.bytes,
                   !value.overwritten};
    }
  }
  for (size_t i = 0; i < tape.operators().size(); ++i) {
    for (const TapedTensor& tensor : tape.operators()[i].tensors) {
      if (!tensor.scratch && tape.values()[tensor.value].can_be_computed()) {
        spans[tensor.value].last_read = i;
      }
    }
  }
  return spans;
}

// Bytes that are alive after each operator; kNever where something that will
// be overwritten is.
std::vector<int64_t> alive_after(const std::vector<Span>& spans,
                                 size_t operators) {
  std::vector<int64_t> change(operators + 1, 0);
  std::vector<int64_t> fixed(operators + 1, 0);
  for (const Span& span : spans) {
    std::vector<int64_t>& kind = span.can_be_cut ? change : fixed;
    const int64_t amount = span.can_be_cut ? span.bytes : int64_t{1};
    kind[span.made] += amount;
    kind[span.last_read] -= amount;
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  std::partial_sum(fixed.begin(), fixed.end(), fixed.begin());
  for (size_t i = 0; i < operators; ++i) {
    change[i] = fixed[i] > 0 ? kNever : change[i];
  }
  change.resize(operators);
  return change;
}

Blocks blocks_of(const std::vector<Span>& spans, const std::vector<bool>& saved,
                 size_t operators) {
  const std::vector<int64_t> alive = alive_after(spans, operators);
  std::vector<size_t> cuts;
  for (size_t i = 0; i + 1 < operators; ++i) {
    if (alive[i] < kNever) {
      cuts.push_back(i);
    }
  }
  if (cuts.size() > kMostCuts) {
    std::stable_sort(cuts.begin(), cuts.end(), [&alive](size_t a, size_t b) {
      return alive[a] < alive[b];
    });
    cuts.resize(kMostCuts);
    std::sort(cuts.begin(), cuts.end());
  }
  Blocks blocks;
  for (const size_t cut : cuts) {
    blocks.end.push_back(cut + 1);
  }
  blocks.end.push_back(operators);
  const auto block_of = [&blocks](size_t index) {
    return static_cast<size_t>(
        std::upper_bound(blocks.end.begin(), blocks.end.end(), index) -
        blocks.end.begin());
  };
  blocks.saved_bytes.resize(blocks.size(), 0);
  blocks.spans.resize(blocks.size());
  for (size_t id = 0; id < spans.size(); ++id) {
    if (spans[id].bytes == 0) {
      continue;
    }
    const size_t made = block_of(spans[id].made);
    const size_t last_read = block_of(spans[id].last_read);
    if (saved[id]) {
      blocks.saved_bytes[made] += spans[id].bytes;
    }
    if (last_read > made) {
      blocks.spans[made].push_back({made, last_read, spans[id].bytes, true});
    }
  }
  std::partial_sum(blocks.saved_bytes.begin(), blocks.saved_bytes.end(),
                   blocks.saved_bytes.begin());
  return blocks;
}

// A plan: cuts after these blocks; what follows the last one, the tail, is held
// as a whole, so that nothing of it is computed again.
struct Cuts {
  std::vector<size_t> after;  // blocks
  int64_t held_bytes = 0;     // at the cuts
  int64_t segment_bytes = 0;  // the largest before the tail
  int64_t tail_bytes = 0;
  size_t tail = 0;  // its first block

  // The tail is gone when the first segment is computed again.
  int64_t total() const {
    return held_bytes + std::max(segment_bytes, tail_bytes);
  }
};

// For each block j the least that is held at cuts up to one after j, with no
// segment over the limit, and where the segment begins that ends there.
struct Prefixes {
  std::vector<int64_t> held;
  std::vector<size_t> first;
};

Prefixes prefixes_within(const Blocks& blocks, int64_t limit) {
  const size_t count = blocks.size();
  Prefixes best{std::vector<int64_t>(count, kNever),
                std::vector<size_t>(count, 0)};
  for (size_t j = 0; j + 1 < count; ++j) {
    int64_t new_bytes = 0;
    for (size_t i = j + 1; i-- > 0 && blocks.saved_in(i, j) <= limit;) {
      for (const Span& span : blocks.spans[i]) {
        new_bytes += span.last_read > j ? span.bytes : 0;
      }
      const int64_t before = i == 0 ? 0 : best.held[i - 1];
      if (before + new_bytes < best.held[j]) {
        best.held[j] = before + new_bytes;
        best.first[j] = i;
      }
    }
  }
  return best;
}

Cuts cuts_before(const Blocks& blocks, const Prefixes& best, size_t tail) {
  Cuts cuts;
  cuts.tail = tail;
  cuts.tail_bytes = blocks.saved_in(tail, blocks.size() - 1);
  if (tail == 0) {
    return cuts;
  }
  cuts.held_bytes = best.held[tail - 1];
  for (size_t j = tail - 1;; j = best.first[j] - 1) {
    cuts.after.push_back(j);
    cuts.segment_bytes =
        std::max(cuts.segment_bytes, blocks.saved_in(best.first[j], j));
    if (best.first[j] == 0) {
      break;
    }
  }
  std::reverse(cuts.after.begin(), cuts.after.end());
  return cuts;
}

// The longest tail, hence the least to compute again, of those that take no
// more than the budget; if none does, what takes the least. Of equal tails what
// takes less.
Cuts best_cuts(const Blocks& blocks, int64_t budget) {
  const size_t count = blocks.size();
  int64_t largest_block = 0;
  for (size_t j = 0; j < count; ++j) {
    largest_block = std::max(largest_block, blocks.saved_in(j, j));
  }
  Cuts best = cuts_before(blocks, {}, 0);
  const auto is_better = [budget, &best](const Cuts& cuts) {
    if (cuts.total() > budget || best.total() > budget) {
      return cuts.total() < best.total();
    }
    return cuts.tail != best.tail ? cuts.tail < best.tail
                                  : cuts.total() < best.total();
  };
  auto limit = static_cast<double>(blocks.saved_bytes.back());
  for (int i = 0; i < kLimits; ++i) {
    const int64_t bytes = std::max(largest_block, static_cast<int64_t>(limit));
    const Prefixes prefixes = prefixes_within(blocks, bytes);
    for (size_t tail = 1; tail < count; ++tail) {
      if (prefixes.held[tail - 1] < kNever) {
        Cuts cuts = cuts_before(blocks, prefixes, tail);
        if (is_better(cuts)) {
          best = std::move(cuts);
        }
      }
    }
    if (bytes == largest_block) {
      break;
    }
    limit *= 0.85;
  }
  return best;
}

}  // namespace

GraphPlan plan_of_tape(const OperatorTape& tape,
                       const std::vector<size_t>& saved,
                       std::vector<std::string> operators,
                       std::optional<int64_t> budget_bytes) {
  GraphPlan plan;
  plan.held.resize(operators.size(), false);
  plan.operators = std::move(operators);
  std::vector<bool> is_saved(tape.values().size(), false);
  for (const size_t id : saved) {
    is_saved[id] = true;
  }
  for (size_t id = 0; id < is_saved.size(); ++id) {
    const TapedValue& value = tape.values()[id];
    if (value.made_here && (value.read || is_saved[id])) {
      plan.fixed_bytes += value.bytes;
    }
  }
  if (tape.operators().empty()) {
    plan.fits = plan.fixed_bytes <= budget_bytes.value_or(kNever);
    plan.peak_bytes = plan.fixed_bytes;
    return plan;
  }
  const std::vector<Span> spans = spans_of(tape);
  const Blocks blocks = blocks_of(spans, is_saved, tape.operators().size());
  const Cuts cuts =
      best_cuts(blocks, budget_bytes.value_or(0) - plan.fixed_bytes);
  plan.segments = static_cast<int64_t>(cuts.after.size());
  plan.held_bytes = cuts.held_bytes;
  plan.largest_segment_bytes = cuts.segment_bytes;
  plan.plain_bytes = blocks.saved_bytes.back() + plan.fixed_bytes;
  plan.peak_bytes = cuts.total() + plan.fixed_bytes;
  plan.fits = plan.peak_bytes <= budget_bytes.value_or(kNever);
  const size_t first_of_tail = cuts.tail == 0 ? 0 : blocks.end[cuts.tail - 1];
  for (size_t id = 0; id < spans.size(); ++id) {
    const Span& span = spans[id];
    const bool in_tail = is_saved[id] && span.made >= first_of_tail;
    const bool crosses =
        std::any_of(cuts.after.begin(), cuts.after.end(), [&](size_t block) {
          return span.made < blocks.end[block] &&
                 span.last_read >= blocks.end[block];
        });
    if (span.bytes > 0 && (in_tail || crosses)) {
      plan.held[tape.operators()[span.made].number] = true;
    }
  }
  return plan;
}

}  // namespace detail
}  // namespace remat
