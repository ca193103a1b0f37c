// A third opinion: the integer program of Jain et al. ("Checkmate: breaking the
// memory wall with optimal tensor rematerialization", 2020), with our own
// constraints for what is alive, solved by GLPK.
#include <glpk.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "remat/plan/bounds.h"
#include "remat/plan/solve.h"
#include "tests/plan/oracles.h"

namespace remat::plan {
namespace {

// Rows of a linear program as they come.
class Program {
 public:
  Program() : program_(glp_create_prob(), glp_delete_prob) {
    glp_term_out(GLP_OFF);
    glp_set_obj_dir(program_.get(), GLP_MIN);
  }

  // From 0 to 1, or exactly 1.
  int column(double cost, bool whole, bool fixed = false) {
    const int column = glp_add_cols(program_.get(), 1);
    glp_set_col_bnds(program_.get(), column, fixed ? GLP_FX : GLP_DB,
                     fixed ? 1 : 0, 1);
    glp_set_obj_coef(program_.get(), column, cost);
    if (whole) {
      glp_set_col_kind(program_.get(), column, GLP_IV);
    }
    return column;
  }

  // Sum of factor * column <= most. Columns of number 0 are constants of 0.
  void at_most(const std::vector<std::pair<double, int>>& terms, double most) {
    std::vector<int> columns = {0};
    std::vector<double> factors = {0};
    for (const auto& [factor, column] : terms) {
      if (column != 0 && factor != 0) {
        columns.push_back(column);
        factors.push_back(factor);
      }
    }
    const int row = glp_add_rows(program_.get(), 1);
    glp_set_row_bnds(program_.get(), row, GLP_UP, 0, most);
    glp_set_mat_row(program_.get(), row, static_cast<int>(columns.size()) - 1,
                    columns.data(), factors.data());
  }

  std::optional<int64_t> solve() {
    glp_iocp how;
    glp_init_iocp(&how);
    how.presolve = GLP_ON;
    how.mir_cuts = GLP_ON;
    how.cov_cuts = GLP_ON;
    how.clq_cuts = GLP_ON;
    const int status = glp_intopt(program_.get(), &how);
    if (status == GLP_ENOPFS) {
      return std::nullopt;
    }
    EXPECT_EQ(status, 0);
    if (glp_mip_status(program_.get()) != GLP_OPT) {
      EXPECT_EQ(glp_mip_status(program_.get()), GLP_NOFEAS);
      return std::nullopt;
    }
    return std::llround(glp_mip_obj_val(program_.get()));
  }

 private:
  std::unique_ptr<glp_prob, void (*)(glp_prob*)> program_;
};

// Computations in the order in which each runs first, and the values they make.
struct Computation {
  double cost = 0;
  int64_t bytes = 0;
  int64_t workspace = 0;
  std::vector<int> reads;
};

// The least cost within the memory, each computation at most once between the
// first runs of two others; nothing where there is none.
std::optional<int64_t> milp_cost(const std::vector<Computation>& all,
                                 int64_t memory) {
  const int n = static_cast<int>(all.size());
  Program program;
  // runs[t][i]: i runs while t is the one that runs for the first time.
  // kept[t][i]: its value is there before. No column: 0.
  std::vector<std::vector<int>> runs(n, std::vector<int>(n, 0));
  std::vector<std::vector<int>> kept(n + 1, std::vector<int>(n, 0));
  for (int t = 0; t < n; ++t) {
    for (int i = 0; i <= t; ++i) {
      runs[t][i] = program.column(all[i].cost, true, i == t);
      kept[t][i] = i < t ? program.column(0, true) : 0;
    }
  }
  for (int t = 0; t < n; ++t) {
    for (int i = 0; i <= t; ++i) {
      program.at_most({{1, kept[t + 1][i]}, {-1, kept[t][i]}, {-1, runs[t][i]}},
                      0);
      for (const int read : all[i].reads) {
        program.at_most(
            {{1, runs[t][i]}, {-1, runs[t][read]}, {-1, kept[t][read]}}, 0);
      }
    }
  }
  // What is alive while k runs: made or kept before, and read or kept later.
  for (int t = 0; t < n; ++t) {
    for (int k = 0; k <= t; ++k) {
      std::vector<std::pair<double, int>> there = {
          {static_cast<double>(all[k].workspace), runs[t][k]}};
      for (int i = 0; i <= t; ++i) {
        const int alive = program.column(0, false);
        there.emplace_back(static_cast<double>(all[i].bytes), alive);
        const auto needs = [&](int later) {
          for (const int before : {kept[t][i], i <= k ? runs[t][i] : 0}) {
            if (before != 0 && later != 0) {
              program.at_most({{1, before}, {1, later}, {-1, alive}}, 1);
            }
          }
        };
        if (i == k) {
          program.at_most({{1, runs[t][k]}, {-1, alive}}, 0);
        }
        needs(kept[t + 1][i]);
        for (int later = std::max(k, i + 1); later <= t; ++later) {
          if (std::count(all[later].reads.begin(), all[later].reads.end(), i)) {
            needs(runs[t][later]);
          }
        }
      }
      program.at_most(there, static_cast<double>(memory));
    }
  }
  return program.solve();
}

TEST(Milp, IsThatOfTheGoldenGraphs) {
  int compared = 0;
  for (const auto& entry : golden("dag_small.json")) {
    if (entry["n"] > 10) {
      continue;  // minutes
    }
    std::vector<Computation> all(entry["n"].get<size_t>());
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].cost = entry["cost"][i];
      all[i].bytes = entry["mem"][i];
    }
    for (const auto& edge : entry["edges"]) {
      all[edge[1].get<size_t>()].reads.push_back(edge[0]);
    }
    for (const auto& row : entry["checkmate"]) {
      const auto cost = milp_cost(all, row["M"]);
      ASSERT_EQ(cost.has_value(), row["milp"].is_number());
      if (cost) {
        EXPECT_EQ(*cost, row["milp"]) << entry["name"] << row;
      }
      ++compared;
    }
    EXPECT_FALSE(milp_cost(all, entry["min_feasible"].get<int64_t>() - 1));
  }
  EXPECT_GE(compared, 8);
}

// The chain's values, each as saved state enough for the backward, and its
// gradients.
std::vector<Computation> computations(const Chain& chain) {
  const int length = chain.length();
  std::vector<Computation> all;
  for (int i = 0; i < length; ++i) {
    const Stage& stage = chain.stages[i];
    all.push_back({stage.forward_seconds, stage.output_bytes,
                   stage.forward_workspace_bytes,
                   i == 0 ? std::vector<int>{} : std::vector<int>{i - 1}});
  }
  all.push_back({chain.loss.seconds,
                 chain.value_bytes(length),
                 chain.loss.workspace_bytes,
                 {length - 1}});
  for (int i = length - 1; i >= 0; --i) {
    std::vector<int> reads = {i, static_cast<int>(all.size()) - 1};
    if (i > 0) {
      reads.push_back(i - 1);
    }
    all.push_back({chain.stages[i].backward_seconds, chain.value_bytes(i),
                   chain.stages[i].backward_workspace_bytes, reads});
  }
  return all;
}

TEST(Milp, AgreesWithTheExhaustiveSearchAndTheSolver) {
  std::mt19937_64 random(31);
  int compared = 0;
  int as_exhaustive = 0;
  int as_solver = 0;
  for (int k = 0; k < 40; ++k) {
    Chain chain =
        random_chain(random, {.stages = 1 + k % 4, .temporaries = k % 2 == 0});
    for (Stage& stage : chain.stages) {
      stage.saved_bytes = stage.output_bytes;
    }
    const int64_t least = least_budget(chain);
    SolveOptions options;
    options.budget_bytes =
        least - 1 +
        static_cast<int64_t>(random() % (keep_all_bytes(chain) - least + 2));
    const auto cost =
        milp_cost(computations(chain),
                  options.budget_bytes - chain.fixed_bytes - chain.input_bytes);
    const auto exhaustive = exhaustive_seconds(chain, options.budget_bytes);
    const Result plan = solve(chain, options);
    ASSERT_EQ(cost.has_value(), exhaustive.has_value());
    if (!cost) {
      EXPECT_FALSE(plan);
      continue;
    }
    ++compared;
    ASSERT_GE(*cost, *exhaustive) << to_json(chain);
    as_exhaustive += *cost == *exhaustive ? 1 : 0;
    if (plan) {
      ASSERT_LE(*cost, plan->seconds) << to_json(chain);
      as_solver += *cost == plan->seconds ? 1 : 0;
    }
  }
  std::printf("%d programs: %d as the search, %d as the solver\n", compared,
              as_exhaustive, as_solver);
  EXPECT_GT(compared, 20);
  EXPECT_EQ(as_exhaustive, compared);
}

}  // namespace
}  // namespace remat::plan
