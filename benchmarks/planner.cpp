// Time and memory of planning: "optimal" on chains of unequal, of equal and of
// repeated stages, within a share of what keeping everything takes.
//
//   remat_planner_benchmark STAGES KINDS SHARE [MAX_OPERATIONS]
//
// prints one line of JSON, and
//
//   remat_planner_benchmark sqrt
//
// the table of docs/sqrt.md.
#include <sys/resource.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "remat/plan/bounds.h"
#include "remat/plan/simulator.h"
#include "remat/plan/solve.h"
#include "remat/plan/solvers/rules.h"

namespace {

using namespace remat::plan;

// Stages of which times, sizes and temporaries differ by the factors that those
// of convolutional networks and transformers do.
Chain benchmark_chain(int stages, int kinds) {
  std::mt19937_64 random(1);
  const auto between = [&](double least, double most) {
    return least +
           (most - least) * static_cast<double>(random() >> 11) * 0x1p-53;
  };
  std::vector<Stage> all;
  for (int i = 0; i < kinds; ++i) {
    Stage stage;
    stage.forward_seconds = between(1, 10);
    stage.backward_seconds = 2 * stage.forward_seconds;
    const double output = between(1e6, 1e7);
    stage.output_bytes = static_cast<int64_t>(output);
    stage.saved_bytes = static_cast<int64_t>(output * between(2, 6));
    stage.forward_workspace_bytes = static_cast<int64_t>(between(0, 3e6));
    stage.backward_workspace_bytes = static_cast<int64_t>(between(0, 3e6));
    all.push_back(stage);
  }
  Chain chain;
  chain.input_bytes = 1000000;
  for (int i = 0; i < stages; ++i) {
    chain.stages.push_back(all[i % kinds]);
  }
  return chain;
}

// Chains of equal stages whose saved state is one value: the number of segments
// that takes the least memory, and what "optimal" makes of as much.
void print_square_roots() {
  std::printf("%6s %6s %6s %8s %6s %9s %9s %9s\n", "stages", "sqrt", "best k",
              "2 sqrt", "peak", "keep all", "segments", "optimal");
  for (int stages = 4; stages <= 1024; stages *= 2) {
    Stage stage;
    stage.forward_seconds = 1;
    stage.backward_seconds = 2;
    stage.output_bytes = stage.saved_bytes = 1;
    Chain chain;
    chain.input_bytes = 1;
    chain.stages.assign(stages, stage);
    SolveOptions options;
    options.budget_bytes = kUnlimited;
    int best = 0;
    double extra = 0;
    for (int k = 1; k <= stages; ++k) {
      const Run run = simulate(chain, equal_segments(stages, k), false);
      if (run.peak_bytes < options.budget_bytes) {
        options.budget_bytes = run.peak_bytes;
        best = k;
        extra = run.recompute_seconds;
      }
    }
    const Result optimal = solve(chain, options);
    std::printf("%6d %6.1f %6d %8.1f %6ld %9ld %9.3f %9.3f\n", stages,
                std::sqrt(stages), best, 2 * std::sqrt(stages),
                static_cast<long>(options.budget_bytes),
                static_cast<long>(keep_all_bytes(chain)), extra / stages,
                optimal->extra_seconds / stages);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "sqrt") == 0) {
    print_square_roots();
    return 0;
  }
  if (argc < 4) {
    std::fprintf(stderr,
                 "usage: %s STAGES KINDS SHARE [MAX_OPERATIONS] | sqrt\n",
                 argv[0]);
    return 2;
  }
  const int stages = std::atoi(argv[1]);
  const int kinds = std::atoi(argv[2]);
  const double share = std::atof(argv[3]);
  const Chain chain = benchmark_chain(stages, kinds);
  SolveOptions options;
  options.budget_bytes =
      static_cast<int64_t>(static_cast<double>(keep_all_bytes(chain)) * share);
  if (argc > 4) {
    options.max_operations = std::atof(argv[4]);
  }
  const Result plan = solve(chain, options);
  if (!plan) {
    std::printf("%s\n", plan.error().reason.c_str());
    return 1;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf(
      "{\"stages\": %d, \"kinds\": %d, \"budget_share\": %.2f, "
      "\"solve_seconds\": %.3f, \"user_seconds\": %.3f, "
      "\"resident_mib\": %ld, \"extra_forwards\": %.4f, \"gap\": %.4f, "
      "\"budget_used\": %.5f, \"coarsened\": %s}\n",
      stages, kinds, share, plan->solve_seconds,
      static_cast<double>(usage.ru_utime.tv_sec) +
          1e-6 * static_cast<double>(usage.ru_utime.tv_usec),
      usage.ru_maxrss / 1024, plan->extra_seconds / forward_seconds(chain),
      plan->optimality_gap,
      static_cast<double>(plan->peak_bytes) /
          static_cast<double>(options.budget_bytes),
      plan->coarsened.empty() ? "false" : "true");
}
