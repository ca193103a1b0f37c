#include "remat/plan/solvers/time_table.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "remat/plan/solvers/improve.h"
#include "remat/plan/solvers/parallel.h"

namespace remat::plan {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr size_t kChunkFloats = size_t{1} << 18;

// Sizes as units; with kNearest the running sum is rounded, not each size.
class UnitRounder {
 public:
  explicit UnitRounder(const Grid& grid) : grid_(grid) {}

  int operator()(int64_t bytes) {
    int64_t units = 0;
    switch (grid_.rounding) {
      case Rounding::kUp:
        units = bytes / grid_.unit + (bytes % grid_.unit != 0);
        break;
      case Rounding::kDown:
        units = bytes / grid_.unit;
        break;
      case Rounding::kNearest: {
        const int64_t wanted = bytes + owed_;
        units = std::max<int64_t>(wanted + grid_.unit / 2, 0) / grid_.unit;
        owed_ = wanted - units * grid_.unit;
        break;
      }
    }
    return static_cast<int>(std::min<int64_t>(units, grid_.units + 1));
  }

 private:
  const Grid& grid_;
  int64_t owed_ = 0;
};

}  // namespace

class TableFiller {
 public:
  TableFiller(TimeTable& table, const TableLimits& limits)
      : table_(table),
        problem_(table.problem_),
        limits_(limits),
        threads_(std::max(1, limits.threads)),
        blocks_(table.grid_.units / kImproveBlock + 1),
        scratch_(threads_),
        previous_(problem_.length + 2),
        current_(problem_.length + 2) {
    for (Scratch& scratch : scratch_) {
      scratch.best.resize(table.grid_.units + 1);
    }
    table_.chunks_.resize(threads_);
  }

  bool run() {
    const int last = problem_.length;
    for (int distance = 0; distance <= last; ++distance) {
      std::vector<int> starts;
      for (int s = 0; s + distance <= last; ++s) {
        if (table_.intervals_.first_start(s, s + distance) == s) {
          starts.push_back(s);
        }
      }
      // A thread costs more to start than short intervals take.
      const double work =
          static_cast<double>(starts.size()) * distance * table_.grid_.units;
      parallel_for(work > 1e6 ? threads_ : 1, static_cast<int>(starts.size()),
                   [&](int thread, int i) {
                     fill(scratch_[thread], thread, starts[i],
                          starts[i] + distance);
                   });
      if (full_) {
        return false;
      }
      previous_.swap(current_);
    }
    for (const Scratch& scratch : scratch_) {
      table_.operations_ += scratch.operations;
    }
    table_.bytes_ = bytes_;
    return true;
  }

 private:
  using Row = TimeTable::Row;

  struct Scratch {
    Target target() { return {best.data(), tops.data(), origin.data()}; }

    std::vector<float> best;
    std::vector<float> tops;
    // Limits below this one may still improve.
    int size = 0;
    std::vector<ForwardSteps> steps;
    std::vector<bool> tried;
    // The boundary that last improved each block.
    std::vector<int32_t> origin;
    int j = 0;
    // What is left of the current chunk.
    float* next = nullptr;
    size_t room = 0;
    double operations = 0;
  };

  void fill(Scratch& scratch, int thread, int s, int t) {
    for (int variant = 0; variant < problem_.variants(t); ++variant) {
      if (full_) {
        return;
      }
      std::fill(scratch.best.begin(), scratch.best.end(), kInfinite);
      scratch.tops.assign(blocks_, kInfinite);
      scratch.size = static_cast<int>(scratch.best.size());
      if (s == t) {
        alone(scratch, s, variant);
      } else {
        split(scratch, s, t, variant);
      }
      keep(scratch, thread, s, t, variant);
    }
  }

  void alone(Scratch& scratch, int s, int variant) {
    if (s == problem_.length) {
      return from(scratch, loss_bytes(problem_), 0);
    }
    if (variant > 0) {
      return from(scratch, problem_.backward_bytes[s][variant], 0);
    }
    for (const Keep& keep : problem_.keeps[s + 1]) {
      from(scratch, alone_bytes(problem_, s, keep), keep.extra_seconds);
    }
  }

  // With enough memory for `bytes`, no more than `seconds`.
  void from(Scratch& scratch, int64_t bytes, double seconds) {
    const float cost = static_cast<float>(seconds * table_.scale_);
    const int size = static_cast<int>(scratch.best.size());
    for (int m = table_.units_for(bytes); m < size; ++m) {
      scratch.best[m] = std::min(scratch.best[m], cost);
    }
  }

  void split(Scratch& scratch, int s, int t, int variant) {
    // Forwards up to each boundary, whatever is kept there.
    scratch.steps.clear();
    ForwardSteps steps(problem_, s);
    for (int j = s + 1; j <= t; ++j) {
      scratch.steps.push_back(steps);
      steps.advance(j);
    }
    // What was best for the intervals without the first and without the last
    // stage is near the best here; tried first, it rules out most of the rest.
    scratch.tried.assign(t + 1, false);
    scratch.origin.assign(blocks_, 0);
    boundary(scratch, s, t, variant, s + 1);
    // Nothing is better than keeping all where that fits.
    scratch.size = static_cast<int>(
        std::partition_point(scratch.best.begin(), scratch.best.end(),
                             [](float value) { return value > 0; }) -
        scratch.best.begin());
    for (const int near : {s, s + 1}) {
      for (const int32_t j : previous_[near]) {
        if (j > s && j <= t && !scratch.tried[j]) {
          boundary(scratch, s, t, variant, j);
        }
      }
    }
    for (int j = s + 1; j <= t; ++j) {
      if (!scratch.tried[j]) {
        boundary(scratch, s, t, variant, j);
      }
    }
    if (variant == 0) {
      current_[s] = scratch.origin;
    }
  }

  void boundary(Scratch& scratch, int s, int t, int variant, int j) {
    scratch.tried[j] = true;
    scratch.j = j;
    const int64_t gradient = problem_.value[t + 1];
    ForwardSteps steps = scratch.steps[j - s - 1];
    const Row& right = table_.row(j, t, variant);
    const std::vector<Keep>& keeps = problem_.keeps[j];
    const double saved_from = problem_.prefix[j - 1] - problem_.prefix[s];
    for (size_t k = 0; k < keeps.size(); ++k) {
      candidate(scratch, saved_from + keeps[k].extra_seconds,
                gradient + steps.saving(j, keeps[k]), right,
                table_.right_units_[j][k],
                table_.row(s, j - 1, keeps[k].variant),
                table_.left_units_[j][k]);
    }
    candidate(scratch, problem_.prefix[j] - problem_.prefix[s],
              gradient + steps.advance(j), right, table_.value_units_[j],
              table_.row(s, j - 1, 0), 0);
  }

  void candidate(Scratch& scratch, double seconds, int64_t bytes,
                 const Row& right, int right_units, const Row& left,
                 int left_units) {
    if (right.count == 0 || left.count == 0) {
      return;
    }
    const float cost = static_cast<float>(seconds * table_.scale_);
    const int right_from = right.least + right_units;
    const int left_from = left.least + left_units;
    const int begin =
        std::max({table_.units_for(bytes), right_from, left_from});
    const int size = scratch.size;
    if (begin >= size || right.last + left.last + cost >= scratch.best[begin]) {
      return;
    }
    // Where a row ends, it stays the same.
    const int right_end = std::clamp(right_from + right.count, begin, size);
    const int left_end = std::clamp(left_from + left.count, begin, size);
    const int both = std::min(right_end, left_end);
    const int either = std::max(right_end, left_end);
    // Looking at a block costs about a fourth of computing it.
    scratch.operations += 64 + (size - begin) / 4;
    const Target target = scratch.target();
    const Part right_part = right.part(right_from);
    const Part left_part = left.part(left_from);
    scratch.operations +=
        improve(target, scratch.j, begin, both, right_part, left_part, cost);
    scratch.operations += right_end > left_end
                              ? improve(target, scratch.j, both, either,
                                        right_part, left.last + cost)
                              : improve(target, scratch.j, both, either,
                                        left_part, right.last + cost);
    // From here on the candidate is one number.
    const float last = right.last + left.last + cost;
    for (int m = either; m < size && target.best[m] > last; ++m) {
      target.best[m] = last;
      const int block = m / kImproveBlock;
      target.origins[block] = scratch.j;
      target.tops[block] = target.best[block * kImproveBlock];
    }
  }

  // Copies the part of best that says something into the table.
  void keep(Scratch& scratch, int thread, int s, int t, int variant) {
    const std::vector<float>& best = scratch.best;
    const auto finite = std::find_if(best.begin(), best.end(), [](float value) {
      return value < kInfinite;
    });
    Row row;
    if (finite != best.end()) {
      // Not increasing: the entries end with the first of the last value.
      const auto flat = std::partition_point(
          finite, best.end(),
          [last = best.back()](float value) { return value > last; });
      row.least = static_cast<int>(finite - best.begin());
      row.count = static_cast<int>(flat - finite) + 1;
      const size_t entries = static_cast<size_t>(row.count);
      const size_t count =
          entries + (entries + kImproveBlock - 1) / kImproveBlock;
      if (count > scratch.room) {
        if (!grow(scratch, thread, std::max(count, kChunkFloats))) {
          return;
        }
      }
      float* samples = std::copy_n(finite, entries, scratch.next);
      for (size_t i = 0; i < entries; i += kImproveBlock) {
        *samples++ = finite[std::min(i + kImproveBlock, entries) - 1];
      }
      row.entries = scratch.next;
      row.last = best.back();
      scratch.next += count;
      scratch.room -= count;
    }
    table_.rows_[table_.intervals_.index(s, t, variant)] = row;
  }

  bool grow(Scratch& scratch, int thread, size_t floats) {
    const auto bytes = static_cast<int64_t>(floats * sizeof(float));
    if ((bytes_ += bytes) > limits_.max_bytes) {
      full_ = true;
      return false;
    }
    auto& chunks = table_.chunks_[thread];
    chunks.push_back(std::make_unique_for_overwrite<float[]>(floats));
    scratch.next = chunks.back().get();
    scratch.room = floats;
    return true;
  }

  TimeTable& table_;
  const Problem& problem_;
  const TableLimits limits_;
  const int threads_;
  const int blocks_;
  std::vector<Scratch> scratch_;
  // Of the intervals one stage shorter, by start: the boundaries that decided.
  std::vector<std::vector<int32_t>> previous_;
  std::vector<std::vector<int32_t>> current_;
  std::atomic<int64_t> bytes_{0};
  std::atomic<bool> full_{false};
};

float TimeTable::Row::at(int units) const {
  if (count == 0 || units < least) {
    return kInfinite;
  }
  return entries[std::min(units - least, count - 1)];
}

TimeTable::TimeTable(const Problem& problem, const Intervals& intervals,
                     const Grid& grid)
    : problem_(problem),
      intervals_(intervals),
      grid_(grid),
      rows_(intervals.count()),
      value_units_(problem.length + 1),
      right_units_(problem.length + 1),
      left_units_(problem.length + 1) {
  const double forward = problem.prefix[problem.length];
  if (forward > 0) {
    int exponent = 0;
    std::frexp(forward, &exponent);
    scale_ = std::ldexp(1.0, 12 - exponent);
  }
  UnitRounder values(grid);
  // One rounder a way, so that runs of stages kept the same way add up right.
  std::vector<UnitRounder> states(kMaxWays, UnitRounder(grid));
  // Equal stages must stay equal: the first of a kind decides.
  std::vector<int> first(problem.length + 1, 0);
  for (int j = 1; j <= problem.length; ++j) {
    int& known = first[problem.kind[j - 1]];
    if (known > 0) {
      value_units_[j] = value_units_[known];
      left_units_[j] = left_units_[known];
      right_units_[j] = right_units_[known];
      continue;
    }
    known = j;
    value_units_[j] = values(problem.value[j]);
    for (size_t k = 0; k < problem.keeps[j].size(); ++k) {
      const Keep& keep = problem.keeps[j][k];
      left_units_[j].push_back(states[k](keep.left_bytes));
      UnitRounder beside(grid);
      right_units_[j].push_back(keep.right_bytes == keep.left_bytes
                                    ? left_units_[j].back()
                                    : beside(keep.right_bytes));
    }
  }
}

std::unique_ptr<TimeTable> TimeTable::fill(const Problem& problem,
                                           const Intervals& intervals,
                                           const Grid& grid,
                                           const TableLimits& limits) {
  std::unique_ptr<TimeTable> table(new TimeTable(problem, intervals, grid));
  if (!TableFiller(*table, limits).run()) {
    return nullptr;
  }
  return table;
}

int TimeTable::units_for(int64_t bytes) const {
  int64_t units = 0;
  if (grid_.rounding == Rounding::kDown) {
    units = bytes / grid_.unit;
  } else if (bytes > grid_.rest) {
    const int64_t beyond = bytes - grid_.rest;
    units = beyond / grid_.unit + (beyond % grid_.unit != 0);
  }
  return static_cast<int>(std::min<int64_t>(units, grid_.units + 1));
}

double TimeTable::extra_seconds(int units) const {
  return row(0, problem_.length, 0).at(units) / scale_;
}

int TimeTable::least_units() const {
  const Row& whole = row(0, problem_.length, 0);
  return whole.count == 0 ? grid_.units + 1 : whole.least;
}

}  // namespace remat::plan
