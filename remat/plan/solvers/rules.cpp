#include "remat/plan/solvers/rules.h"

#include <algorithm>
#include <limits>

namespace remat::plan {
namespace {

// beta(c, r), at most `most`.
int64_t beta(int64_t c, int64_t r, int64_t most) {
  if (r < 0) {
    return 0;
  }
  int64_t value = 1;
  for (int64_t i = 1; i <= std::min(c, r); ++i) {
    // value * (max + i) / i stays whole at each step.
    const __int128 next =
        static_cast<__int128>(value) * (std::max(c, r) + i) / i;
    if (next >= most) {
      return most;
    }
    value = static_cast<int64_t>(next);
  }
  return value;
}

struct Segment {
  int begin = 0;
  int end = 0;
  bool kept = false;
};

Schedule by_segments(int stages, const std::vector<Segment>& segments) {
  Emitter emitter(stages);
  for (const Segment& segment : segments) {
    if (!segment.kept) {
      emitter.advance(segment.begin, segment.end);
      continue;
    }
    for (int i = segment.begin; i < segment.end; ++i) {
      emitter.add(ActionKind::kForwardSave, i);
    }
  }
  emitter.add(ActionKind::kLoss, 0);
  for (auto segment = segments.rbegin(); segment != segments.rend();
       ++segment) {
    for (int i = segment->begin; i < segment->end && !segment->kept; ++i) {
      emitter.add(ActionKind::kForwardSave, i);
    }
    for (int i = segment->end - 1; i >= segment->begin; --i) {
      emitter.add(ActionKind::kBackward, i);
    }
  }
  return emitter.take();
}

// j + t(j, c) + t(L - j, c - 1) is convex in j, as t(., c) is.
int best_split(int length, int slots) {
  const auto cost = [&](int j) {
    return j + binomial_advances(j, slots) +
           binomial_advances(length - j, slots - 1);
  };
  int low = 1;
  int high = length - 1;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (cost(middle + 1) >= cost(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace

Schedule keep_all(int stages) {
  return by_segments(stages, {{0, stages, /*kept=*/true}});
}

Schedule recompute_all(int stages) { return binomial(stages, 1); }

Schedule recompute_listed(int stages, const std::vector<bool>& recomputed) {
  std::vector<Segment> segments;
  for (int i = 0; i < stages; ++i) {
    segments.push_back({i, i + 1, !recomputed[i]});
  }
  return by_segments(stages, segments);
}

Schedule equal_segments(int stages, int segments) {
  const int length = stages / segments;
  std::vector<Segment> all;
  for (int i = 0; i < segments; ++i) {
    const bool last = i == segments - 1;
    all.push_back({i * length, last ? stages : (i + 1) * length, last});
  }
  return by_segments(stages, all);
}

Schedule binomial(int stages, int slots) {
  Emitter emitter(stages);
  add_binomial(emitter, 0, stages, std::min(slots, stages));
  return emitter.take();
}

void add_binomial(Emitter& emitter, int begin, int end, int slots) {
  while (end - begin > 1) {
    const int split =
        slots > 1 ? best_split(end - begin, slots) : end - begin - 1;
    emitter.advance(begin, begin + split);
    add_binomial(emitter, begin + split, end, slots > 1 ? slots - 1 : 1);
    end = begin + split;
  }
  emitter.add(ActionKind::kForwardSave, begin);
  if (begin == emitter.stages() - 1) {
    emitter.add(ActionKind::kLoss, 0);
  }
  emitter.add(ActionKind::kBackward, begin);
}

int64_t binomial_advances(int64_t stages, int64_t slots) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (slots == 1) {
    return stages - 1 > (int64_t{1} << 32) ? kMost : stages * (stages - 1) / 2;
  }
  int64_t r = 0;
  while (beta(slots, r, kMost) < stages) {
    ++r;
  }
  const __int128 advances =
      static_cast<__int128>(r) * stages - beta(slots + 1, r - 1, kMost);
  return advances > kMost ? kMost : static_cast<int64_t>(advances);
}

}  // namespace remat::plan
