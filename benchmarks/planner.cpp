#include <cstdio>
#include <cstdlib>
#include <random>
#include "remat/plan/bounds.h"
#include "remat/plan/solve.h"
using namespace remat::plan;
int main(int argc, char** argv) {
  int n = atoi(argv[1]);
  int kinds = atoi(argv[2]);
  double share = atof(argv[3]);
  SolveOptions o;
  if (argc > 4) o.max_operations = atof(argv[4]);
  std::mt19937_64 r(1);
  auto u = [&](double a, double b) {
    return a + (b - a) * (r() >> 11) * 0x1p-53;
  };
  std::vector<Stage> ks;
  for (int i = 0; i < kinds; ++i) {
    Stage s;
    s.forward_seconds = u(1, 10);
    s.backward_seconds = 2 * s.forward_seconds;
    s.output_bytes = u(1e6, 1e7);
    s.saved_bytes = s.output_bytes * u(2, 6);
    s.forward_workspace_bytes = u(0, 3e6);
    s.backward_workspace_bytes = u(0, 3e6);
    ks.push_back(s);
  }
  Chain c;
  c.input_bytes = 1000000;
  for (int i = 0; i < n; ++i) c.stages.push_back(ks[i % kinds]);
  double all = keep_all_bytes(c);
  o.budget_bytes = all * share;
  auto res = solve(c, o);
  if (!res) {
    printf("infeasible %ld\n", res.error().least_bytes);
    return 0;
  }
  printf(
      "n %d kinds %d share %.2f: solve %.3f s extra %.3f%% of forward gap %.4f "
      "peak/budget %.5f\n",
      n, kinds, share, res->solve_seconds,
      100 * res->extra_seconds / forward_seconds(c), res->optimality_gap,
      double(res->peak_bytes) / o.budget_bytes);
}
