// Twelve equal stages in half of the memory, and a graph with a skip link.
#include <remat/plan/bounds.h>
#include <remat/plan/dag.h>
#include <remat/plan/simulator.h>
#include <remat/plan/solve.h>

#include <cstdio>

int main() {
  using namespace remat::plan;
  Stage stage;
  stage.forward_seconds = 1;
  stage.backward_seconds = 2;
  stage.output_bytes = 1000;
  stage.saved_bytes = 4000;
  Chain chain;
  chain.input_bytes = 1000;
  chain.stages.assign(12, stage);
  SolveOptions options;
  options.budget_bytes = keep_all_bytes(chain) / 2;
  const Result plan = solve(chain_from_json(to_json(chain)), options);
  if (!plan || plan->peak_bytes > options.budget_bytes ||
      simulate(chain, plan->schedule).seconds != plan->seconds) {
    return 1;
  }

  Dag dag;
  dag.nodes = {{.name = "down", .inputs = {kGraphInput}, .output_bytes = 10},
               {.name = "middle", .inputs = {0}, .output_bytes = 20},
               {.name = "up", .inputs = {0, 1}, .output_bytes = 10}};
  if (group(dag, {1, 2}).held.size() != 1) {
    return 1;
  }
  std::printf("%.0f of %.0f seconds extra in %lld of %lld bytes\n",
              plan->extra_seconds, plan->seconds,
              static_cast<long long>(plan->peak_bytes),
              static_cast<long long>(keep_all_bytes(chain)));
  return 0;
}
