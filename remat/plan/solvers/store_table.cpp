#include "remat/plan/solvers/store_table.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "remat/plan/solvers/parallel.h"
#include "remat/plan/solvers/store_reader.h"

namespace remat::plan {
namespace {

constexpr float kNever = std::numeric_limits<float>::infinity();
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max() / 4;

// Units of the store for least memory; more of them are rounded.
constexpr int64_t kMostStoreUnits = 256;

StoreGrid least_grid(const StoreProblem& problem) {
  StoreGrid grid;
  grid.store_unit = std::max<int64_t>(problem.store_unit(), 1);
  if (problem.capacity() / grid.store_unit > kMostStoreUnits) {
    grid.store_unit = problem.capacity() / kMostStoreUnits + 1;
  }
  return grid;
}

// Candidates of all intervals, for each limit.
double candidates(const StoreProblem& problem) {
  const Problem& chain = problem.problem();
  double count = 1;
  for (int t = 0; t <= chain.length; ++t) {
    double shorter = 0;
    for (int s = t; s >= 0; --s) {
      if (problem.intervals().first_start(s, t) == s) {
        shorter += t - s;
      }
    }
    count += shorter * static_cast<double>(chain.keeps[t].size() + 2) *
             chain.variants(t);
  }
  return count * (problem.moves_values() ? 2 : 1);
}

// For each distance between the ends, for each interval of its own.
template <class Fill>
void for_each_interval(const StoreProblem& problem, int threads, Fill fill) {
  const int last = problem.problem().length;
  for (int distance = 0; distance <= last; ++distance) {
    parallel_for(distance == 0 ? 1 : threads, last - distance + 1,
                 [&](int, int s) {
                   const int t = s + distance;
                   if (problem.intervals().first_start(s, t) == s) {
                     fill(s, t);
                   }
                 });
  }
}

template <class Visit>
void for_each_row(const StoreProblem& problem, const PartRows& rows, int s,
                  int t, Visit visit) {
  // Parts that are away ask those that are not.
  for (int mode = 0; mode < rows.modes(); ++mode) {
    for (int variant = 0; variant < problem.problem().variants(t); ++variant) {
      visit(Part{s, t, variant, mode == 1});
    }
  }
}

Part here(const StoreProblem& problem, const StoreGrid& grid, Part part) {
  part.away = false;
  part.memory -= grid.memory(problem.problem().value[part.s]);
  return part;
}

}  // namespace

StoreSizes store_sizes(const StoreProblem& problem, int64_t room,
                       double max_operations, int64_t max_table_bytes) {
  StoreSizes sizes;
  const double rows = static_cast<double>(PartRows(problem, 0).count());
  const double most =
      std::min(max_operations / candidates(problem),
               static_cast<double>(max_table_bytes) / (rows * sizeof(float)));
  const int64_t memory_unit = std::max<int64_t>(problem.memory_unit(), 1);
  const int64_t store_unit = std::max<int64_t>(problem.store_unit(), 1);
  const auto cells = [](int64_t memory, int64_t store) {
    return static_cast<double>(memory + 1) * static_cast<double>(store + 1);
  };
  sizes.grid.unit = memory_unit;
  sizes.grid.store_unit = store_unit;
  sizes.store_units = problem.capacity() / store_unit;
  sizes.exact = cells(room / memory_unit, sizes.store_units) <= most;
  if (!sizes.exact) {
    const int64_t affordable =
        std::max<int64_t>(1, std::llround(std::sqrt(most / 8)));
    if (sizes.store_units > affordable) {
      sizes.grid.store_unit = problem.capacity() / affordable;
      sizes.store_units = problem.capacity() / sizes.grid.store_unit;
    }
    const auto units = static_cast<int64_t>(
        most / static_cast<double>(sizes.store_units + 1) - 1);
    if (units < problem.problem().length) {
      return sizes;
    }
    sizes.grid.unit = std::max(memory_unit, room / units + 1);
  }
  sizes.memory_units = room / sizes.grid.unit;
  sizes.grid.rest = room % sizes.grid.unit;
  return sizes;
}

StoreTable::StoreTable(const StoreProblem& problem, const StoreSizes& sizes,
                       int threads)
    : problem_(problem),
      sizes_(sizes),
      grid_(sizes_.grid),
      rows_(problem, sizes.store_units),
      seconds_(rows_.count() * (sizes.memory_units + 1), kNever) {
  for_each_interval(problem, threads, [&](int s, int t) { fill(s, t); });
}

void StoreTable::fill(int s, int t) {
  for_each_row(problem_, rows_, s, t, [&](Part part) {
    if (part.away) {
      // x_s stays on the device: all else follows as if it were never away.
      const int64_t shift = grid_.memory(problem_.problem().value[s]);
      Part stays = part;
      stays.away = false;
      const int64_t taken = grid_.stored(problem_.value_amount(s));
      for (int64_t d = taken; d <= sizes_.store_units; ++d) {
        part.store = stays.store = d;
        const float* from = row(stays);
        float* to = row(part);
        for (int64_t m = shift; m <= sizes_.memory_units; ++m) {
          to[m] = from[m - shift];
        }
      }
      part.store = 0;
    }
    if (s < t) {
      fill_split(part);
    } else if (!part.away) {
      fill_alone(part);
    }
  });
}

void StoreTable::fill_alone(const Part& part) {
  const Problem& chain = problem_.problem();
  const auto offer = [&](double seconds, int64_t bytes, int64_t amount) {
    Part with = part;
    for (with.store = grid_.stored(amount); with.store <= sizes_.store_units;
         ++with.store) {
      float* to = row(with);
      for (int64_t m = grid_.least(bytes); m <= sizes_.memory_units; ++m) {
        to[m] = std::min(to[m], static_cast<float>(seconds));
      }
    }
  };
  if (part.s == chain.length) {
    offer(0, loss_bytes(chain), 0);
  } else if (part.variant > 0) {
    offer(0, chain.backward_bytes[part.s][part.variant], 0);
  } else {
    for (const Keep& keep : chain.keeps[part.s + 1]) {
      const auto& kept = problem_.kept(part.s + 1, keep);
      if (kept.usable) {
        offer(keep.extra_seconds, alone_bytes(chain, part.s, keep),
              kept.amount);
      }
    }
  }
}

void StoreTable::fill_split(const Part& part) {
  const int64_t least_store =
      part.away ? grid_.stored(problem_.value_amount(part.s)) : 0;
  problem_.choices(grid_, part, [&](const Choice& choice) {
    const auto cost = static_cast<float>(choice.seconds);
    // As the part's own numbers are 0, these are what the choice takes.
    const int64_t right_less = -choice.right.memory;
    const int64_t left_less = -choice.left.memory;
    const int64_t from =
        std::max({choice.least, right_less, left_less, int64_t{0}});
    Part whole = part;
    Part right = choice.right;
    Part left = choice.left;
    for (whole.store =
             std::max({-choice.right.store, -choice.left.store, least_store});
         whole.store <= sizes_.store_units; ++whole.store) {
      right.store = whole.store + choice.right.store;
      left.store = whole.store + choice.left.store;
      float* to = row(whole);
      const float* first = row(right);
      const float* second = row(left);
      for (int64_t m = from; m <= sizes_.memory_units; ++m) {
        const float seconds =
            cost + first[m - right_less] + second[m - left_less];
        to[m] = seconds < to[m] ? seconds : to[m];
      }
    }
  });
}

double StoreTable::at(const Part& part) const {
  if (part.memory < 0 || part.store < 0) {
    return kNever;
  }
  return seconds_[rows_.index(part) * (sizes_.memory_units + 1) + part.memory];
}

bool StoreTable::fits(const Part& part) const { return at(part) < kNever; }

bool StoreTable::stays(const Part& part) const {
  return at(here(problem_, grid_, part)) <= at(part);
}

Choice StoreTable::pick(const Part& part) const {
  Choice best;
  float least = kNever;
  problem_.choices(grid_, part, [&](const Choice& choice) {
    if (choice.least > part.memory) {
      return;
    }
    const float seconds = static_cast<float>(choice.seconds) +
                          static_cast<float>(at(choice.right)) +
                          static_cast<float>(at(choice.left));
    if (seconds < least) {
      least = seconds;
      best = choice;
    }
  });
  return best;
}

double StoreTable::extra_seconds() const {
  const Part whole =
      whole_part(problem_, sizes_.memory_units, sizes_.store_units);
  if (!problem_.moves_input()) {
    return at(whole);
  }
  return std::min(at(here(problem_, grid_, whole)),
                  problem_.write_seconds(0) + at(whole));
}

Schedule StoreTable::schedule(int store) const {
  const Part whole =
      whole_part(problem_, sizes_.memory_units, sizes_.store_units);
  const bool stays =
      problem_.moves_input() &&
      at(here(problem_, grid_, whole)) <= problem_.write_seconds(0) + at(whole);
  return StoreReader(*this, store)
      .read(stays ? here(problem_, grid_, whole) : whole);
}

StoreLeast::StoreLeast(const StoreProblem& problem, int threads)
    : problem_(problem),
      grid_(least_grid(problem)),
      rows_(problem, problem.capacity() / grid_.store_unit),
      least_(rows_.count(), kNoLimit) {
  for_each_interval(problem, threads, [&](int s, int t) { fill(s, t); });
}

void StoreLeast::fill(int s, int t) {
  for_each_row(problem_, rows_, s, t, [&](Part part) {
    const int64_t taken =
        part.away ? grid_.stored(problem_.value_amount(s)) : 0;
    for (part.store = taken; part.store <= rows_.store_units(); ++part.store) {
      int64_t& least = least_[rows_.index(part)];
      if (part.away) {
        Part stays = part;
        stays.away = false;
        least = at(stays) + problem_.problem().value[s];
      } else if (s == t) {
        least = alone(part);
      }
      if (s < t) {
        least = std::min(least, split(part));
      }
    }
  });
}

int64_t StoreLeast::alone(const Part& part) const {
  const Problem& chain = problem_.problem();
  if (part.s == chain.length) {
    return loss_bytes(chain);
  }
  if (part.variant > 0) {
    return chain.backward_bytes[part.s][part.variant];
  }
  int64_t least = kNoLimit;
  for (const Keep& keep : chain.keeps[part.s + 1]) {
    const auto& kept = problem_.kept(part.s + 1, keep);
    if (kept.usable && grid_.stored(kept.amount) <= part.store) {
      least = std::min(least, alone_bytes(chain, part.s, keep));
    }
  }
  return least;
}

int64_t StoreLeast::split(const Part& part) const {
  int64_t least = kNoLimit;
  problem_.choices(grid_, part, [&](const Choice& choice) {
    least = std::min(
        least, std::max({choice.least,
                         part.memory - choice.right.memory + at(choice.right),
                         part.memory - choice.left.memory + at(choice.left)}));
  });
  return least;
}

int64_t StoreLeast::at(const Part& part) const {
  return part.store < 0 ? kNoLimit : least_[rows_.index(part)];
}

bool StoreLeast::stays(const Part& part) const {
  return fits(here(problem_, grid_, part));
}

Choice StoreLeast::pick(const Part& part) const {
  Choice best;
  double seconds = std::numeric_limits<double>::infinity();
  problem_.choices(grid_, part, [&](const Choice& choice) {
    if (choice.least <= part.memory && fits(choice.right) &&
        fits(choice.left) && choice.seconds < seconds) {
      seconds = choice.seconds;
      best = choice;
    }
  });
  return best;
}

int64_t StoreLeast::bytes() const {
  const Part whole = whole_part(problem_, 0, rows_.store_units());
  int64_t least = at(whole);
  if (problem_.moves_input()) {
    Part stays = whole;
    stays.away = false;
    least = std::min(least, at(stays) + problem_.problem().value[0]);
  }
  return problem_.base_bytes() + least;
}

Schedule StoreLeast::schedule(int store) const {
  Part whole = whole_part(problem_, bytes() - problem_.base_bytes(),
                          rows_.store_units());
  const Part stays = here(problem_, grid_, whole);
  return StoreReader(*this, store)
      .read(problem_.moves_input() && fits(stays) ? stays : whole);
}

double store_least_steps(const StoreProblem& problem) {
  return candidates(problem) *
         static_cast<double>(
             problem.capacity() / least_grid(problem).store_unit + 1);
}

}  // namespace remat::plan
