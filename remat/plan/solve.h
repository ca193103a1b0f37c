// From a chain and a memory budget to a plan.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "remat/plan/chain.h"
#include "remat/plan/schedule.h"

namespace remat::plan {

struct SolveOptions {
  // What the run may use at once, Chain::fixed_bytes included. A hard limit.
  int64_t budget_bytes = kUnlimited;

  // One of solver_names(). "optimal" is the fastest plan that fits; the others
  // are fixed rules, good for comparison, of which the plan either fits or does
  // not.
  std::string solver = "optimal";

  // "every-n": stages 0, n, 2n, ... are recomputed, the others kept.
  int every_n = 2;
  // "segments": how many of equal length; 0: the fastest number that fits.
  int segments = 0;
  // "layers": the stages that are recomputed, the others are kept.
  std::vector<int> layers;
  // "binomial", "two-level": how many values are kept on the device at once,
  // the input counted while it is there; 0: as many as fit.
  int slots = 0;
  // "two-level": where other values wait, an index into Chain::stores.
  int store = 0;

  // "optimal": sizes are rounded to units, finer until at most
  // this share of the plan's extra time can be due to rounding ...
  double gap = 0.01;
  // ... or until these bounds of a table's bytes and of the elementary steps
  // (1e9 take about a second on one core) are met. If they leave a gap of more
  // than a tenth, neighbouring stages are joined; Plan::coarsened says so if
  // the plan is from there.
  int64_t max_table_bytes = int64_t{1} << 30;
  double max_operations = 4e9;
  // 0: all processors, at most eight. The plan does not depend on it.
  int threads = 0;
};

struct Plan {
  Schedule schedule;
  std::string solver;
  // As simulate() says.
  int64_t peak_bytes = 0;
  double seconds = 0;
  // The part of it beyond one plain pass.
  double extra_seconds = 0;
  // Of extra_seconds, the share that could be saved at most by a plan of the
  // solver's class without rounding; 0: none, 1: nothing is known. The fixed
  // rules state how far they are from any plan at all.
  double optimality_gap = 0;
  // Not empty if the chain was simplified to be solved in bounded time and
  // memory: how.
  std::string coarsened;
  // Time to solve.
  double solve_seconds = 0;
};

struct Infeasible {
  // The least budget with which the solver has a plan.
  int64_t least_bytes = 0;
  std::string reason;
};

// A plan, or why there is none: as std::expected.
class Result {
 public:
  Result(Plan plan) : state_(std::move(plan)) {}
  Result(Infeasible error) : state_(std::move(error)) {}

  explicit operator bool() const { return state_.index() == 0; }
  // Throw std::bad_variant_access if it is the other one.
  const Plan& operator*() const { return std::get<Plan>(state_); }
  const Plan* operator->() const { return &std::get<Plan>(state_); }
  const Infeasible& error() const { return std::get<Infeasible>(state_); }

 private:
  std::variant<Plan, Infeasible> state_;
};

// Every plan has run in simulate() and stays within the budget. Throws
// UsageError for an invalid chain, an unknown solver or an option out of
// range.
Result solve(const Chain& chain, const SolveOptions& options = {});

struct SolverInfo {
  std::string name;
  std::string summary;
};

// All solvers, with a line for people.
const std::vector<SolverInfo>& solvers();
std::vector<std::string> solver_names();

}  // namespace remat::plan
