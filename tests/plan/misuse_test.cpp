// Numbers that no model has, in every field there is, and files that are broken
// in every place: an error that names both, never a plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "remat/plan/bounds.h"
#include "remat/plan/frontier.h"
#include "remat/plan/solve.h"
#include "tests/plan/oracles.h"

namespace remat::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

Chain full_chain() {
  Chain chain = equal_chain(4, 10, 30);
  chain.stores = {{.name = "disk", .capacity_values = 2}};
  chain.stages[2].name = "attention";
  chain.stages[2].options = {
      {.name = "away", .saved_bytes = 5, .store = 0, .stored_bytes = 25}};
  return chain;
}

// All that solves a chain says the same of it.
std::vector<std::string> complaints(const Chain& chain) {
  std::vector<std::string> all = {error_of([&] { validate(chain); }),
                                  error_of([&] { to_json(chain); }),
                                  error_of([&] { frontier(chain); }),
                                  error_of([&] { least_budget(chain); }),
                                  error_of([&] { keep_all_bytes(chain); })};
  for (const std::string& solver : solver_names()) {
    all.push_back(error_of([&] {
      SolveOptions options;
      options.solver = solver;
      options.budget_bytes = 60;
      solve(chain, options);
    }));
  }
  return all;
}

template <class Number>
struct Field {
  const char* place;
  const char* name;
  Number& (*of)(Chain&);
};

TEST(Misuse, EveryTimeIsLookedAt) {
  const std::vector<Field<double>> fields = {
      {"loss", "seconds", [](Chain& c) -> double& { return c.loss.seconds; }},
      {"stage 1", "forward_seconds",
       [](Chain& c) -> double& { return c.stages[1].forward_seconds; }},
      {"stage 3", "backward_seconds",
       [](Chain& c) -> double& { return c.stages[3].backward_seconds; }},
      {"stage 2 (attention), option 0 (away)", "extra_forward_seconds",
       [](Chain& c) -> double& {
         return c.stages[2].options[0].extra_forward_seconds;
       }},
      {"stage 2 (attention), option 0 (away)", "extra_backward_seconds",
       [](Chain& c) -> double& {
         return c.stages[2].options[0].extra_backward_seconds;
       }},
      {"store 0 (disk)", "write_seconds",
       [](Chain& c) -> double& { return c.stores[0].write_seconds; }},
      {"store 0 (disk)", "read_seconds",
       [](Chain& c) -> double& { return c.stores[0].read_seconds; }},
      {"store 0 (disk)", "write_bytes_per_second",
       [](Chain& c) -> double& { return c.stores[0].write_bytes_per_second; }},
      {"store 0 (disk)", "read_bytes_per_second",
       [](Chain& c) -> double& { return c.stores[0].read_bytes_per_second; }},
  };
  for (const auto& field : fields) {
    for (const double wrong :
         {-1.0, -1e-300, double(NAN), double(INFINITY), -double(INFINITY)}) {
      Chain chain = full_chain();
      field.of(chain) = wrong;
      for (const std::string& text : complaints(chain)) {
        EXPECT_THAT(text, HasSubstr(str("[plan] ", field.place, ": ",
                                        field.name, " is ", wrong, "; ")));
      }
    }
  }
}

TEST(Misuse, EverySizeIsLookedAt) {
  const std::vector<Field<int64_t>> fields = {
      {"chain", "input_bytes",
       [](Chain& c) -> int64_t& { return c.input_bytes; }},
      {"chain", "fixed_bytes",
       [](Chain& c) -> int64_t& { return c.fixed_bytes; }},
      {"loss", "workspace_bytes",
       [](Chain& c) -> int64_t& { return c.loss.workspace_bytes; }},
      {"stage 1", "output_bytes",
       [](Chain& c) -> int64_t& { return c.stages[1].output_bytes; }},
      {"stage 1", "saved_bytes",
       [](Chain& c) -> int64_t& { return c.stages[1].saved_bytes; }},
      {"stage 0", "forward_workspace_bytes",
       [](Chain& c) -> int64_t& {
         return c.stages[0].forward_workspace_bytes;
       }},
      {"stage 3", "backward_workspace_bytes",
       [](Chain& c) -> int64_t& {
         return c.stages[3].backward_workspace_bytes;
       }},
      {"stage 2 (attention), option 0 (away)", "saved_bytes",
       [](Chain& c) -> int64_t& { return c.stages[2].options[0].saved_bytes; }},
      {"stage 2 (attention), option 0 (away)", "forward_workspace_bytes",
       [](Chain& c) -> int64_t& {
         return c.stages[2].options[0].forward_workspace_bytes;
       }},
      {"stage 2 (attention), option 0 (away)", "backward_workspace_bytes",
       [](Chain& c) -> int64_t& {
         return c.stages[2].options[0].backward_workspace_bytes;
       }},
      {"stage 2 (attention), option 0 (away)", "stored_bytes",
       [](Chain& c) -> int64_t& {
         return c.stages[2].options[0].stored_bytes;
       }},
  };
  for (const auto& field : fields) {
    for (const int64_t wrong :
         {int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
      Chain chain = full_chain();
      field.of(chain) = wrong;
      for (const std::string& text : complaints(chain)) {
        EXPECT_THAT(text,
                    HasSubstr(str("[plan] ", field.place, ": ", field.name,
                                  " is ", wrong, "; it must not be negative")));
      }
    }
    // Alone it is too much, or with the others.
    for (const int64_t wrong :
         {kLargest, int64_t{1} << 60, (int64_t{1} << 60) - 50}) {
      Chain chain = full_chain();
      field.of(chain) = wrong;
      for (const std::string& text : complaints(chain)) {
        EXPECT_THAT(text, HasSubstr("add up to more than 2^60 bytes"));
        EXPECT_THAT(text, HasSubstr("[plan] "));
      }
    }
  }
}

TEST(Misuse, SumsThatWouldOverflowAreNamed) {
  // Each size is fine; eight of them are not.
  Chain chain = equal_chain(8, 10, int64_t{1} << 57);
  for (const std::string& text : complaints(chain)) {
    EXPECT_THAT(text, HasSubstr("[plan] stage 7: saved_bytes is "
                                "144115188075855872; the sizes of the chain "
                                "add up to more than 2^60 bytes"));
  }
  // Just below all is well, and nothing overflows on the way.
  chain = equal_chain(7, 10, int64_t{1} << 57);
  SolveOptions options;
  options.budget_bytes = keep_all_bytes(chain) - 1;
  options.max_operations = 1e7;
  const Result plan = solve(chain, options);
  ASSERT_TRUE(plan);
  EXPECT_LE(plan->peak_bytes, options.budget_bytes);
}

TEST(Misuse, NoBudgetBelowTheFloorHasAPlan) {
  Chain chain = full_chain();
  chain.fixed_bytes = 1000;
  for (const std::string& solver : solver_names()) {
    for (const int64_t budget : {int64_t{0}, int64_t{1}, int64_t{999},
                                 least_budget(full_chain()) + 1000 - 30}) {
      SolveOptions options;
      options.solver = solver;
      options.budget_bytes = budget;
      const Result none = solve(chain, options);
      ASSERT_FALSE(none) << solver << budget;
      EXPECT_GT(none.error().least_bytes, budget) << solver;
      EXPECT_THAT(none.error().reason, HasSubstr("the budget is")) << solver;
      options.budget_bytes = none.error().least_bytes;
      EXPECT_TRUE(solve(chain, options)) << solver;
    }
    SolveOptions options;
    options.solver = solver;
    options.budget_bytes = std::numeric_limits<int64_t>::min();
    EXPECT_THAT(error_of([&] { solve(chain, options); }),
                HasSubstr("budget_bytes is -9223372036854775808; it must not "
                          "be negative"));
  }
}

TEST(Misuse, OptionsThatAreNoNumbers) {
  const auto with = [](const std::function<void(SolveOptions&)>& spoil) {
    SolveOptions options;
    spoil(options);
    return error_of([&] { solve(full_chain(), options); });
  };
  EXPECT_THAT(with([](SolveOptions& o) { o.gap = NAN; }),
              HasSubstr("[plan] gap is nan; it must be from 0 to 1"));
  EXPECT_THAT(with([](SolveOptions& o) { o.max_operations = NAN; }),
              HasSubstr("[plan] max_operations is nan; it must be at least"));
  EXPECT_THAT(with([](SolveOptions& o) { o.solver = ""; }),
              HasSubstr("[plan] solver is '', which is unknown"));
  EXPECT_THAT(with([](SolveOptions& o) { o.solver = "two-levle"; }),
              HasSubstr("did you mean two-level?"));
}

TEST(Misuse, TwoLevelNeedsAStore) {
  const auto with =
      [](const std::function<void(SolveOptions&, Chain&)>& spoil) {
        SolveOptions options;
        options.solver = "two-level";
        Chain chain = full_chain();
        spoil(options, chain);
        return error_of([&] { solve(chain, options); });
      };
  EXPECT_EQ(with([](SolveOptions&, Chain&) {}), "no error");
  EXPECT_THAT(
      with([](SolveOptions&, Chain& chain) { chain = equal_chain(4, 1, 1); }),
      HasSubstr("[plan] solver two-level needs a store; the chain has "
                "none"));
  for (const int store : {-1, 1}) {
    EXPECT_THAT(with([&](SolveOptions& o, Chain&) { o.store = store; }),
                HasSubstr(str("[plan] store is ", store,
                              "; the chain has 1, counted from 0")));
  }
  EXPECT_THAT(with([](SolveOptions& o, Chain&) { o.slots = -1; }),
              HasSubstr("[plan] slots is -1; it must be at least 1"));
}

TEST(Misuse, StoresOfOneNameAreRefused) {
  Chain chain = full_chain();
  chain.stores.push_back({.name = "disk"});
  EXPECT_THAT(error_of([&] { validate(chain); }),
              HasSubstr("[plan] store 1 (disk): name is \"disk\"; an earlier "
                        "store has that name"));
}

TEST(Misuse, BrokenFilesAreNamed) {
  const auto chain_of = [](const std::string& text) {
    return error_of([&] { chain_from_json(text, "c.json"); });
  };
  const auto schedule_of = [](const std::string& text) {
    return error_of([&] { schedule_from_json(text, "s.json"); });
  };
  const std::string open =
      R"({"format": "remat-chain", "version": 1, "input_bytes": 1, "stages": )";
  const auto stage = [&](const std::string& saved) {
    return open + R"([{"forward_seconds": 1, "backward_seconds": 1,
                       "output_bytes": 1, "saved_bytes": )" +
           saved + "}]}";
  };
  EXPECT_EQ(chain_of(stage("1")), "no error");
  for (const char* wrong :
       {"-1", "1e30", "1.5", "\"1\"", "[1]", "{}", "true"}) {
    EXPECT_THAT(chain_of(stage(wrong)),
                AllOf(HasSubstr("[plan] "), HasSubstr("stage 0: saved_bytes")))
        << wrong;
  }
  for (const char* wrong : {"NaN", "1e999", "-", "", "0x10"}) {
    EXPECT_THAT(chain_of(stage(wrong)), HasSubstr("[plan] c.json: ")) << wrong;
  }
  EXPECT_THAT(chain_of(open + "[]}"), HasSubstr("stages is empty"));
  EXPECT_THAT(chain_of(open + "[7]}"), HasSubstr("c.json: stage 0"));
  EXPECT_THAT(schedule_of(R"({"format": "remat-schedule", "version": 2,
                              "stages": 1, "actions": []})"),
              HasSubstr("s.json: version is 2; this remat reads versions up to "
                        "1: a newer one wrote the file"));
  EXPECT_THAT(schedule_of(R"({"format": "remat-schedule", "version": 1,
                              "stages": 0, "actions": []})"),
              HasSubstr("s.json: stages is 0; it must be from 1 to 100000"));
  // Deeper than any stack, and cut off anywhere.
  for (const char* bracket : {"[", "{\"a\":"}) {
    std::string deep;
    for (int i = 0; i < 200000; ++i) {
      deep += bracket;
    }
    EXPECT_THAT(chain_of(deep), HasSubstr("[plan] c.json"));
  }
  const std::string good = to_json(full_chain());
  for (size_t length = 0; length + 2 < good.size(); ++length) {
    ASSERT_THAT(chain_of(good.substr(0, length)), HasSubstr("[plan] c.json"))
        << length;
  }
}

}  // namespace
}  // namespace remat::plan
