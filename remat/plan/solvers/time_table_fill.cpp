#include <algorithm>
#include <atomic>
#include <limits>

#include "remat/plan/solvers/improve.h"
#include "remat/plan/solvers/parallel.h"
#include "remat/plan/solvers/time_table.h"

namespace remat::plan {
namespace {

constexpr size_t kChunkFloats = size_t{1} << 18;

// Steps that threads save when they share fewer than these are lost in starting
// them.
constexpr double kStepsForThreads = 1e6;

// Steps that it takes to look at a candidate, to look at a block of limits, and
// to compute an entry.
constexpr double kLooking = 16;
constexpr double kBlock = 0.5;
constexpr double kEntry = 0.25;

}  // namespace

class TableFiller {
 public:
  TableFiller(TimeTable& table, const Wanted& wanted, const TableLimits& limits)
      : table_(table),
        problem_(table.problem_),
        wanted_(wanted),
        limits_(limits),
        threads_(std::max(1, limits.threads)),
        units_(table.grid_.units),
        scratch_(threads_),
        previous_(problem_.length + 2),
        current_(problem_.length + 2),
        most_(problem_.length + 1) {
    for (Scratch& scratch : scratch_) {
      scratch.window.resize(units_ + 1);
    }
    table_.chunks_.resize(threads_);
  }

  bool run() {
    const Intervals& intervals = table_.intervals_;
    const int last = problem_.length;
    double before = 0;
    for (int distance = 0; distance <= last; ++distance) {
      // The longest intervals all end with the loss.
      const int from = distance <= intervals.longest() ? 0 : last - distance;
      std::vector<int> starts;
      for (int s = from; s + distance <= last; ++s) {
        const int t = s + distance;
        if (!intervals.contains(s, t)) {
          continue;
        }
        const int first = intervals.first_start(s, t);
        if (first == s) {
          starts.push_back(s);
          most_[s] = 0;
        }
        most_[first] = std::max(most_[first], most_seconds(s, t));
      }
      parallel_for(before > kStepsForThreads ? threads_ : 1,
                   static_cast<int>(starts.size()), [&](int thread, int i) {
                     fill(scratch_[thread], thread, starts[i],
                          starts[i] + distance);
                   });
      before = -table_.operations_;
      table_.operations_ = 0;
      for (const Scratch& scratch : scratch_) {
        table_.operations_ += scratch.operations;
      }
      before += table_.operations_;
      table_.bytes_ = bytes_;
      if (bytes_ > limits_.max_bytes ||
          table_.operations_ > limits_.max_operations) {
        return false;
      }
      previous_.swap(current_);
    }
    return true;
  }

 private:
  using Row = TimeTable::Row;

  // The row in the making, from the lowest limit that any candidate has up to
  // where it can fall no more. Below, nothing is known to be possible.
  struct Window {
    std::vector<float> best;
    // As in Target.
    std::vector<float> tops;
    std::vector<int32_t> origins;
    int low = 0;
    int size = 0;
    float cut = 0;

    void resize(int entries) {
      best.resize(entries);
      tops.resize(entries / kImproveBlock + 1);
      origins.resize(tops.size());
    }
    void clear(int entries, float most) {
      low = size = entries;
      cut = most;
    }
    float at(int m) const { return m < low ? cut : best[m]; }
    void extend(int begin) {
      if (begin >= low) {
        return;
      }
      const int from = begin - begin % kImproveBlock;
      const int block = from / kImproveBlock;
      const int blocks = (low + kImproveBlock - 1) / kImproveBlock - block;
      std::fill(best.begin() + from, best.begin() + low, cut);
      std::fill_n(tops.begin() + block, blocks, cut);
      std::fill_n(origins.begin() + block, blocks, 0);
      low = from;
    }
    Target target() { return {best.data(), tops.data(), origins.data()}; }
    // One number for all limits from `begin` on.
    void improve(int begin, float seconds, int32_t origin) {
      for (int m = begin; m < size && best[m] > seconds; ++m) {
        best[m] = seconds;
        const int block = m / kImproveBlock;
        origins[block] = origin;
        tops[block] = best[block * kImproveBlock];
      }
    }
  };

  struct Scratch {
    Window window;
    std::vector<ForwardSteps> steps;
    std::vector<bool> tried;
    // What is left of the current chunk.
    float* next = nullptr;
    size_t room = 0;
    double operations = 0;
  };

  // What an interval may cost in plans that are wanted.
  double most_seconds(int s, int t) const {
    if (wanted_.sweep == nullptr) {
      return std::numeric_limits<double>::infinity();
    }
    return t == problem_.length
               ? wanted_.extra
               : wanted_.excess - wanted_.sweep->excess_around(s, t);
  }

  void fill(Scratch& scratch, int thread, int s, int t) {
    if (bytes_ > limits_.max_bytes) {
      return;  // the table is of no use
    }
    const auto most = static_cast<float>(most_[s] * table_.scale_);
    for (int variant = 0; variant < problem_.variants(t); ++variant) {
      scratch.window.clear(units_ + 1, most);
      if (s == t) {
        alone(scratch.window, s, variant);
      } else {
        split(scratch, s, t, variant);
      }
      keep(scratch, thread, s, t, variant);
    }
  }

  void alone(Window& window, int s, int variant) {
    if (s == problem_.length) {
      return from(window, loss_bytes(problem_), 0);
    }
    if (variant > 0) {
      return from(window, problem_.backward_bytes[s][variant], 0);
    }
    for (const Keep& keep : problem_.keeps[s + 1]) {
      from(window, alone_bytes(problem_, s, keep), keep.extra_seconds);
    }
  }

  // With enough memory for `bytes`, no more than `seconds`.
  void from(Window& window, int64_t bytes, double seconds) {
    const int begin = table_.units_for(bytes);
    window.extend(begin);
    window.improve(begin, static_cast<float>(seconds * table_.scale_), 0);
  }

  void split(Scratch& scratch, int s, int t, int variant) {
    // Forwards up to each boundary, whatever is kept there.
    scratch.steps.clear();
    ForwardSteps steps(problem_, s);
    const int most = table_.last_boundary(s, t);
    for (int j = s + 1; j <= most; ++j) {
      scratch.steps.push_back(steps);
      steps.advance(j);
    }
    scratch.tried.assign(most + 1, false);
    scratch.window.size = saturation(scratch, s, t, variant);
    scratch.window.low = scratch.window.size;
    // What was best for the intervals without the first and without the last
    // stage is near the best here; tried first, it rules out most of the rest.
    boundary(scratch, s, t, variant, s + 1);
    for (const int near : {s, s + 1}) {
      for (const int32_t j : previous_[near]) {
        if (j > s && j <= most && !scratch.tried[j]) {
          boundary(scratch, s, t, variant, j);
        }
      }
    }
    for (int j = s + 1; j <= most; ++j) {
      if (!scratch.tried[j]) {
        boundary(scratch, s, t, variant, j);
      }
    }
    if (variant == 0) {
      remember(scratch.window, current_[s]);
    }
  }

  // Nothing is better than keeping all where that fits: the limits up to there.
  int saturation(const Scratch& scratch, int s, int t, int variant) const {
    const Row& right = table_.row(s + 1, t, variant);
    const Keep& keep = problem_.keeps[s + 1].front();
    const Row& left = table_.row(s, s, keep.variant);
    if (right.count == 0 || left.count == 0 || right.last + left.last > 0) {
      return units_ + 1;
    }
    const int fits = table_.units_for(problem_.value[t + 1] +
                                      scratch.steps[0].saving(s + 1, keep));
    const int most = std::max(
        {fits, right.least + right.count - 1 + table_.right_units(s + 1, 0, t),
         left.least + left.count - 1 + table_.left_units_[s + 1][0]});
    return std::min(most, units_) + 1;
  }

  void remember(const Window& window, std::vector<int32_t>& origins) const {
    origins.clear();
    for (int block = window.low / kImproveBlock;
         block * kImproveBlock < window.size; ++block) {
      const int32_t j = window.origins[block];
      if (j > 0 &&
          std::find(origins.begin(), origins.end(), j) == origins.end()) {
        origins.push_back(j);
      }
    }
  }

  void boundary(Scratch& scratch, int s, int t, int variant, int j) {
    scratch.tried[j] = true;
    const int64_t gradient = problem_.value[t + 1];
    ForwardSteps steps = scratch.steps[j - s - 1];
    const Row& right = table_.row(j, t, variant);
    const std::vector<Keep>& keeps = problem_.keeps[j];
    const double saved_from = problem_.prefix[j - 1] - problem_.prefix[s];
    for (size_t k = 0; k < keeps.size(); ++k) {
      candidate(scratch, j, saved_from + keeps[k].extra_seconds,
                gradient + steps.saving(j, keeps[k]), right,
                table_.right_units(j, k, t),
                table_.row(s, j - 1, keeps[k].variant),
                table_.left_units_[j][k]);
    }
    candidate(scratch, j, problem_.prefix[j] - problem_.prefix[s],
              gradient + steps.advance(j), right, table_.value_units(j, t),
              table_.row(s, j - 1, 0), 0);
  }

  void candidate(Scratch& scratch, int32_t j, double seconds, int64_t bytes,
                 const Row& right, int right_units, const Row& left,
                 int left_units) {
    scratch.operations += kLooking;
    if (right.count == 0 || left.count == 0) {
      return;
    }
    Window& window = scratch.window;
    const float cost = static_cast<float>(seconds * table_.scale_);
    const int right_from = right.least + right_units;
    const int left_from = left.least + left_units;
    const int begin =
        std::max({table_.units_for(bytes), right_from, left_from});
    const int size = window.size;
    const float last = right.last + left.last + cost;
    if (begin >= size || last >= window.at(begin)) {
      return;
    }
    window.extend(begin);
    // Where a row ends, it stays the same.
    const int right_end = std::clamp(right_from + right.count, begin, size);
    const int left_end = std::clamp(left_from + left.count, begin, size);
    const int both = std::min(right_end, left_end);
    const int either = std::max(right_end, left_end);
    const Target target = window.target();
    const Part right_part = right.part(right_from);
    const Part left_part = left.part(left_from);
    int64_t computed =
        improve(target, j, begin, both, right_part, left_part, cost);
    computed +=
        right_end > left_end
            ? improve(target, j, both, either, right_part, left.last + cost)
            : improve(target, j, both, either, left_part, right.last + cost);
    scratch.operations += kEntry * static_cast<double>(computed) +
                          kBlock * (size - begin) / kImproveBlock;
    // From here on the candidate is one number.
    window.improve(either, last, j);
  }

  // Copies the part of the window that says something into the table.
  void keep(Scratch& scratch, int thread, int s, int t, int variant) {
    const Window& window = scratch.window;
    const auto end = window.best.begin() + window.size;
    const auto finite =
        std::find_if(window.best.begin() + window.low, end,
                     [&](float value) { return value < window.cut; });
    Row row;
    if (finite != end) {
      // Not increasing: the entries end with the first of the last value.
      row.last = *(end - 1);
      const auto flat = std::partition_point(
          finite, end, [&](float value) { return value > row.last; });
      row.least = static_cast<int>(finite - window.best.begin());
      row.count = static_cast<int>(flat - finite) + 1;
      const size_t entries = static_cast<size_t>(row.count);
      const size_t count =
          entries + (entries + kImproveBlock - 1) / kImproveBlock;
      if (count > scratch.room) {
        grow(scratch, thread, std::max(count, kChunkFloats));
      }
      bytes_ += static_cast<int64_t>(count * sizeof(float));
      float* samples = std::copy_n(finite, entries, scratch.next);
      for (size_t i = 0; i < entries; i += kImproveBlock) {
        *samples++ = finite[std::min(i + kImproveBlock, entries) - 1];
      }
      row.entries = scratch.next;
      scratch.next += count;
      scratch.room -= count;
    }
    table_.rows_[table_.intervals_.index(s, t, variant)] = row;
  }

  void grow(Scratch& scratch, int thread, size_t floats) {
    auto& chunks = table_.chunks_[thread];
    chunks.push_back(std::make_unique_for_overwrite<float[]>(floats));
    scratch.next = chunks.back().get();
    scratch.room = floats;
  }

  TimeTable& table_;
  const Problem& problem_;
  const Wanted wanted_;
  const TableLimits limits_;
  const int threads_;
  const int units_;
  std::vector<Scratch> scratch_;
  // Of the intervals one stage shorter, by start: the boundaries that decided.
  std::vector<std::vector<int32_t>> previous_;
  std::vector<std::vector<int32_t>> current_;
  // Of the intervals that are being filled, by start, for all that are the
  // same: more seconds than they may cost.
  std::vector<double> most_;
  std::atomic<int64_t> bytes_{0};
};

std::unique_ptr<TimeTable> TimeTable::fill(const Problem& problem,
                                           const Intervals& intervals,
                                           const Grid& grid,
                                           const Wanted& wanted,
                                           const TableLimits& limits) {
  std::unique_ptr<TimeTable> table(new TimeTable(problem, intervals, grid));
  return TableFiller(*table, wanted, limits).run() ? std::move(table) : nullptr;
}

}  // namespace remat::plan
