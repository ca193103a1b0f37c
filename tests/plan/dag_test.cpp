// Graphs: what they refuse, and that a chain of groups of nodes needs and takes
// what its nodes do.
#include "remat/plan/dag.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <cmath>

#include "remat/plan/bounds.h"
#include "remat/plan/simulator.h"
#include "remat/plan/solve.h"
#include "tests/plan/dag_oracles.h"
#include "tests/plan/oracles.h"

namespace remat::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Encoder a, b; bottom c; decoder d, e that read b and a again.
Dag u_shape() {
  const auto node = [](const char* name, std::vector<int> inputs) {
    DagNode one;
    one.name = name;
    one.inputs = std::move(inputs);
    one.backward_reads = one.inputs;
    one.forward_seconds = 1;
    one.backward_seconds = 2;
    one.output_bytes = 10;
    return one;
  };
  Dag dag;
  dag.input_bytes = 5;
  dag.loss.seconds = 1;
  dag.nodes = {node("a", {kGraphInput}), node("b", {0}), node("c", {1}),
               node("d", {1, 2}), node("e", {0, 3})};
  return dag;
}

TEST(Dag, EveryMisuseIsNamed) {
  EXPECT_EQ(error_of([] { validate(u_shape()); }), "no error");
  const std::vector<std::pair<std::function<void(Dag&)>, std::string>> cases = {
      {[](Dag& d) { d.nodes.clear(); },
       "graph: nodes is empty; it must have at least one node"},
      {[](Dag& d) { d.nodes.resize(kMaxStages + 1); },
       "graph: nodes is 100001; at most 100000 are planned: join some"},
      {[](Dag& d) { d.input_bytes = -1; },
       "graph: input_bytes is -1; it must not be negative"},
      {[](Dag& d) { d.fixed_bytes = int64_t{1} << 61; },
       "the sizes of the graph add up to more than 2^60 bytes"},
      {[](Dag& d) { d.loss.seconds = NAN; },
       "loss: seconds is nan; it must be a time from 0 to 1e12 seconds"},
      {[](Dag& d) { d.nodes[1].forward_seconds = -1; },
       "node 1 (b): forward_seconds is -1; it must be a time"},
      {[](Dag& d) { d.nodes[1].backward_seconds = INFINITY; },
       "node 1 (b): backward_seconds is inf; it must be a time"},
      {[](Dag& d) { d.nodes[2].output_bytes = -7; },
       "node 2 (c): output_bytes is -7; it must not be negative"},
      {[](Dag& d) { d.nodes[2].saved_bytes = -7; },
       "node 2 (c): saved_bytes is -7; it must not be negative"},
      {[](Dag& d) {
         d.nodes[0].forward_workspace_bytes = int64_t{1} << 59;
         d.nodes[2].backward_workspace_bytes = int64_t{1} << 59;
       },
       "node 2 (c): backward_workspace_bytes is 576460752303423488; the sizes "
       "of the graph add up to more than 2^60 bytes"},
      {[](Dag& d) { d.nodes[2].inputs = {2}; },
       "node 2 (c): inputs is 2; it must be from -1, the graph's input, to 1"},
      {[](Dag& d) { d.nodes[2].inputs = {-2}; },
       "node 2 (c): inputs is -2; it must be from -1"},
      {[](Dag& d) { d.nodes[3].backward_reads = {4}; },
       "node 3 (d): backward_reads is 4; it must be from -1, the graph's "
       "input, to 3"},
      {[](Dag& d) {
         d.nodes[3].inputs = {1, 2, 1};
       },
       "node 3 (d): inputs is 1; it is there twice"},
      {[](Dag& d) { d.nodes[4].inputs = {0}; },
       "node 3 (d): inputs is that of no node after it; only the last node's "
       "value goes to the loss"},
      {[](Dag& d) { d.nodes[3].name = ""; },
       "node 3: name is \"\"; each node has a name"},
      {[](Dag& d) { d.nodes[3].name = "input"; },
       "node 3: name is \"input\"; each node has a name, and \"input\" is that "
       "of the graph's input"},
      {[](Dag& d) { d.nodes[3].name = "b"; },
       "node 3: name is \"b\"; an earlier node has that name"},
  };
  for (const auto& [spoil, text] : cases) {
    Dag dag = u_shape();
    spoil(dag);
    EXPECT_THAT(error_of([&] { validate(dag); }), HasSubstr(text));
    EXPECT_THAT(error_of([&] { group(dag, {}); }), HasSubstr(text));
  }
  for (const std::vector<int>& cuts :
       std::vector<std::vector<int>>{{0}, {5}, {-1}, {2, 2}, {3, 1}}) {
    EXPECT_THAT(error_of([&] { group(u_shape(), cuts); }),
                HasSubstr("they rise, from 1 to the last node, 4"));
  }
}

TEST(Dag, JsonKeepsEverything) {
  Dag dag = u_shape();
  dag.fixed_bytes = 9;
  dag.nodes[1].saved_bytes = 3;
  dag.nodes[1].forward_workspace_bytes = 4;
  dag.nodes[1].backward_workspace_bytes = 6;
  dag.nodes[1].backward_reads = {kGraphInput, 1};
  const auto path = std::filesystem::temp_directory_path() /
                    str("remat_dag_", getpid(), ".json");
  write_dag(path, dag);
  const Dag read = read_dag(path);
  std::filesystem::remove(path);
  EXPECT_EQ(to_json(read), to_json(dag));
  EXPECT_EQ(read.nodes[1].backward_reads, dag.nodes[1].backward_reads);
  EXPECT_EQ(read.nodes[3].inputs, dag.nodes[3].inputs);
  EXPECT_EQ(read.nodes[1].backward_workspace_bytes, 6);
}

TEST(Dag, BrokenJsonIsNamed) {
  const auto with = [](const std::string& nodes,
                       const std::string& version = "1") {
    return error_of([&] {
      dag_from_json(R"({"format": "remat-dag", "input_bytes": 1, "version": )" +
                        version + ", \"nodes\": " + nodes + "}",
                    "d.json");
    });
  };
  const auto node = [](const std::string& name, const std::string& rest) {
    return R"({"name": ")" + name +
           R"(", "forward_seconds": 1, "backward_seconds": 1,
               "output_bytes": 1)" +
           rest + "}";
  };
  const std::string a = node("a", R"(, "inputs": ["input"])");
  EXPECT_EQ(with("[" + a + "]"), "no error");
  EXPECT_THAT(with("[]", "2"), HasSubstr("a newer one wrote the file"));
  EXPECT_THAT(with("[]"), HasSubstr("nodes is empty"));
  EXPECT_THAT(with("{}"), HasSubstr("nodes is {}; it must be an array"));
  EXPECT_THAT(with("[{}]"),
              HasSubstr("d.json: node 0: name is absent; it is required"));
  EXPECT_THAT(
      with("[" + a + "," + node("b", R"(, "inputs": ["aa"])") + "]"),
      HasSubstr("d.json: node 1: inputs is [\"aa\"]; no node up to this "
                "one is called \"aa\"; did you mean a?"));
  EXPECT_THAT(with("[" + node("b", R"(, "inputs": ["b"])") + "]"),
              HasSubstr("no node up to this one is called \"b\""));
  EXPECT_THAT(with("[" + node("b", R"(, "inputs": [1])") + "]"),
              HasSubstr("it must be an array of names of nodes"));
  EXPECT_THAT(
      with("[" + node("b", R"(, "input": ["b"])") + "]"),
      HasSubstr("node 0: unknown field \"input\"; did you mean inputs?"));
  EXPECT_THAT(with("[" + node("b", R"(, "saved_bytes": 1.5)") + "]"),
              HasSubstr("node 0: saved_bytes is 1.5"));
  EXPECT_THAT(error_of([] { dag_from_json("[1]", "d.json"); }),
              HasSubstr("d.json"));
}

RC_GTEST_PROP(Dag, AnyTextIsAGraphOrAnError, (const std::string& text)) {
  try {
    dag_from_json(text);
  } catch (const UsageError&) {
  }
}

TEST(Dag, SkipsAreCountedOnce) {
  const Dag dag = u_shape();
  EXPECT_THAT(cut_points(dag), ElementsAre(1));
  // a passes b .. d, and b passes c: both are held. c and d pass on alone.
  const GroupedDag grouped = group(dag, {1, 2, 3, 4});
  EXPECT_THAT(grouped.held, ElementsAre(0, 1));
  EXPECT_EQ(grouped.chain.fixed_bytes, 20);
  EXPECT_EQ(grouped.chain.value_bytes(1), 0);
  EXPECT_EQ(grouped.chain.value_bytes(2), 0);
  EXPECT_EQ(grouped.chain.value_bytes(3), 10);
  EXPECT_EQ(grouped.chain.value_bytes(5), 10);
  // Input, five values, gradients of e, d and what it reads: at the backward of
  // d those of d, b, c and, waiting, a.
  EXPECT_EQ(keep_all_bytes(grouped.chain), 5 + 40 + 40);
  // In one stage of a natural chain b is an inner value.
  const GroupedDag two = group(dag, {1});
  EXPECT_THAT(two.held, ElementsAre());
  EXPECT_EQ(two.chain.length(), 2);
  EXPECT_EQ(two.chain.stages[1].name, "b .. e");
  // One way alone would count what is temporary without saving twice.
  ASSERT_EQ(two.chain.stages[1].options.size(), 1u);
}

TEST(Dag, NodesOfASchedule) {
  const GroupedDag grouped = group(u_shape(), {1, 3});
  EXPECT_THAT(grouped.held, ElementsAre(0));
  const Schedule schedule{.stages = 3,
                          .actions = {{ActionKind::kForwardKeep, 0},
                                      {ActionKind::kForwardSave, 1},
                                      {ActionKind::kForwardSave, 2},
                                      {ActionKind::kLoss},
                                      {ActionKind::kBackward, 2},
                                      {ActionKind::kBackward, 1},
                                      {ActionKind::kForwardSave, 0},
                                      {ActionKind::kBackward, 0}}};
  using Kind = NodeAction::Kind;
  EXPECT_THAT(
      node_actions(grouped, schedule),
      ElementsAre(
          NodeAction{Kind::kForwardSave, 0}, NodeAction{Kind::kForwardSave, 1},
          NodeAction{Kind::kForwardSave, 2}, NodeAction{Kind::kForwardSave, 3},
          NodeAction{Kind::kForwardSave, 4}, NodeAction{Kind::kLoss, 0},
          NodeAction{Kind::kBackward, 4}, NodeAction{Kind::kBackward, 3},
          NodeAction{Kind::kBackward, 2}, NodeAction{Kind::kBackward, 1},
          // The value of a was held.
          NodeAction{Kind::kBackward, 0}));
  EXPECT_THAT(
      error_of([&] { node_actions(grouped, {.stages = 2, .actions = {}}); }),
      HasSubstr("the schedule is for 2 stages; the chain has 3"));
}

TEST(Dag, AStageNeedsWhatItsNodesNeed) {
  std::mt19937_64 random(21);
  int held = 0;
  for (int k = 0; k < 3000; ++k) {
    const Dag dag = random_dag(random, 1 + k % 9);
    const GroupedDag grouped = group(dag, random_cuts(random, dag));
    held += grouped.held.empty() ? 0 : 1;
    for (int i = 0; i < grouped.chain.length(); ++i) {
      const Stage& stage = grouped.chain.stages[i];
      const StagePeaks peaks = stage_peaks(dag, grouped, i);
      // Beside what waits, which is workspace of stages that have nothing to do
      // with it.
      const int64_t waits = stage.forward_workspace_bytes -
                            std::max(peaks.forward - stage.output_bytes,
                                     peaks.saving - stage.saved_bytes);
      ASSERT_GE(waits, 0) << to_json(dag);
      const StageOption* way =
          stage.options.empty() ? nullptr : &stage.options[0];
      ASSERT_EQ(peaks.saving + waits,
                stage.saved_bytes + (way ? way->forward_workspace_bytes
                                         : stage.forward_workspace_bytes));
      const int64_t base =
          stage.saved_bytes + stage.output_bytes + grouped.chain.value_bytes(i);
      const int64_t waiting = stage.backward_workspace_bytes -
                              std::max<int64_t>(0, peaks.backward - base);
      ASSERT_GE(waiting, 0) << i << to_json(dag);
      if (grouped.held.empty() && dag.input_bytes == 0) {
        ASSERT_EQ(waits, 0) << i << to_json(dag);
        ASSERT_EQ(waiting, 0) << i << to_json(dag);
      }
    }
  }
  EXPECT_GT(held, 500);
}

TEST(Dag, APlanNeedsNoMoreThanOnPaper) {
  std::mt19937_64 random(22);
  int as_on_paper = 0;
  int plans = 0;
  for (int k = 0; k < 2000; ++k) {
    const Dag dag = random_dag(random, 1 + k % 9);
    const GroupedDag grouped = group(dag, random_cuts(random, dag));
    const int64_t least = least_budget(grouped.chain);
    SolveOptions options;
    options.budget_bytes =
        least + static_cast<int64_t>(
                    random() % (keep_all_bytes(grouped.chain) - least + 1));
    const Result plan = solve(grouped.chain, options);
    ASSERT_TRUE(plan);
    const int64_t peak = node_peak(dag, grouped, plan->schedule);
    ASSERT_LE(peak, plan->peak_bytes)
        << to_text(plan->schedule) << to_json(dag) << to_json(grouped.chain);
    as_on_paper += peak == plan->peak_bytes ? 1 : 0;
    ++plans;
  }
  std::printf("%d plans, %d need just what they do on paper\n", plans,
              as_on_paper);
  EXPECT_GT(as_on_paper, plans / 5);
}

// Every budget of every way to cut a golden graph, against its frontier.
void compare(const nlohmann::json& entry) {
  const Dag dag = golden_dag(entry);
  const auto& frontier = entry["frontier_exhaustive"];
  std::vector<int64_t> best(frontier.size(),
                            std::numeric_limits<int64_t>::max());
  for (int chosen = 0; chosen < 1 << (dag.size() - 1); ++chosen) {
    std::vector<int> cuts;
    for (int i = 1; i < dag.size(); ++i) {
      if (chosen >> (i - 1) & 1) {
        cuts.push_back(i);
      }
    }
    const GroupedDag grouped = group(dag, cuts);
    const int64_t enough = keep_all_bytes(grouped.chain);
    for (int64_t budget = least_budget(grouped.chain); budget <= enough;
         ++budget) {
      SolveOptions options;
      options.budget_bytes = budget;
      const Result plan = solve(grouped.chain, options);
      ASSERT_TRUE(plan);
      const GoldenRun run =
          golden_run(entry, node_actions(grouped, plan->schedule));
      ASSERT_LE(run.cost, plan->seconds);
      if (plan->extra_seconds == 0) {
        ASSERT_EQ(run.cost, entry["no_recompute_cost"]);
      }
      ASSERT_GE(run.peak, entry["min_feasible"]);
      for (size_t i = 0; i < frontier.size(); ++i) {
        if (run.peak <= frontier[i][0]) {
          best[i] = std::min(best[i], run.cost);
        }
      }
    }
  }
  std::printf("%s:", entry["name"].get<std::string>().c_str());
  for (size_t i = 0; i < frontier.size(); ++i) {
    EXPECT_GE(best[i], frontier[i][1]);
    if (best[i] == std::numeric_limits<int64_t>::max()) {
      std::printf(" %d: none (%d)", frontier[i][0].get<int>(),
                  frontier[i][1].get<int>());
    } else {
      std::printf(" %d: %d (%d)", frontier[i][0].get<int>(),
                  static_cast<int>(best[i]), frontier[i][1].get<int>());
    }
  }
  std::printf("\n");
  // With nothing recomputed nodes run in the same order as there.
  EXPECT_EQ(best.back(), frontier.back()[1]);
}

TEST(GoldenDags, NoPlanBeatsTheExhaustiveSearch) {
  for (const auto& entry : golden("dag_small.json")) {
    compare(entry);
  }
}

}  // namespace
}  // namespace remat::plan
