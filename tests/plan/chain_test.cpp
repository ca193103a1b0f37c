#include "remat/plan/chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "tests/plan/oracles.h"

namespace remat::plan {
namespace {

using ::testing::HasSubstr;

Chain full_chain() {
  Chain chain = equal_chain(3, 10, 30);
  chain.fixed_bytes = 1000;
  chain.holds_input = false;
  chain.loss = {.seconds = 0.25, .workspace_bytes = 7};
  chain.stores = {{.name = "host",
                   .capacity_bytes = 500,
                   .write_seconds = 0.5,
                   .read_bytes_per_second = 1e9},
                  {.name = "disk", .capacity_values = 4}};
  chain.stages[1].name = "attention";
  chain.stages[1].forward_workspace_bytes = 3;
  chain.stages[1].backward_workspace_bytes = 4;
  chain.stages[1].options = {{.name = "half",
                              .saved_bytes = 20,
                              .holds_output = true,
                              .extra_backward_seconds = 0.1},
                             {.name = "away",
                              .saved_bytes = 0,
                              .forward_workspace_bytes = 2,
                              .store = 1,
                              .stored_bytes = 30}};
  return chain;
}

std::string complaint(const std::function<void(Chain&)>& spoil) {
  Chain chain = full_chain();
  spoil(chain);
  return error_of([&] { validate(chain); });
}

TEST(Chain, EveryMisuseIsNamed) {
  EXPECT_EQ(error_of([] { validate(full_chain()); }), "no error");
  const std::vector<std::pair<std::function<void(Chain&)>, std::string>> cases =
      {
          {[](Chain& c) { c.stages.clear(); },
           "chain: stages is empty; it must have at least one stage"},
          {[](Chain& c) { c.stages.resize(kMaxStages + 1); },
           "chain: stages is 100001; at most 100000 are planned: join some"},
          {[](Chain& c) { c.input_bytes = -1; },
           "chain: input_bytes is -1; it must not be negative"},
          {[](Chain& c) { c.fixed_bytes = int64_t{1} << 61; },
           "the sizes of the chain add up to more than 2^60 bytes"},
          {[](Chain& c) { c.loss.seconds = -2; },
           "loss: seconds is -2; it must be a time from 0 to 1e12 seconds"},
          {[](Chain& c) { c.stages[1].forward_seconds = std::nan(""); },
           "stage 1 (attention): forward_seconds is nan; it must be a time"},
          {[](Chain& c) { c.stages[2].backward_seconds = INFINITY; },
           "stage 2: backward_seconds is inf; it must be a time"},
          {[](Chain& c) { c.stages[0].saved_bytes = 9; },
           "stage 0: saved_bytes is 9; it includes the output_bytes of the "
           "stage, 10"},
          {[](Chain& c) { c.stages[0].forward_workspace_bytes = -5; },
           "stage 0: forward_workspace_bytes is -5; it must not be negative"},
          {[](Chain& c) { c.stages[0].options.resize(kMaxWays); },
           "stage 0: options is 64; a stage has at most 63"},
          {[](Chain& c) { c.stages[1].options[0].saved_bytes = 5; },
           "stage 1 (attention), option 0 (half): saved_bytes is 5; with "
           "holds_output it includes the output_bytes of the stage, 10"},
          {[](Chain& c) { c.stages[1].options[1].store = 2; },
           "option 1 (away): store is 2; the chain has 2 stores, counted from "
           "0; -1 is none"},
          {[](Chain& c) { c.stages[1].options[1].store = -1; },
           "stored_bytes is 30; name the store that holds them"},
          {[](Chain& c) { c.stores[0].capacity_bytes = -1; },
           "store 0 (host): capacity_bytes is -1; it must not be negative"},
          {[](Chain& c) { c.stores[1].capacity_values = -3; },
           "store 1 (disk): capacity_values is -3; it must not be negative"},
          {[](Chain& c) { c.stores[0].capacity_values = 3; },
           "limit the store by capacity_bytes or by this, not by both"},
          {[](Chain& c) { c.stores[0].read_bytes_per_second = -1; },
           "read_bytes_per_second is -1; it must be bytes a second, or 0"},
      };
  for (const auto& [spoil, text] : cases) {
    EXPECT_THAT(complaint(spoil), HasSubstr("[plan] "));
    EXPECT_THAT(complaint(spoil), HasSubstr(text));
  }
}

TEST(Chain, JsonKeepsEverything) {
  const Chain chain = full_chain();
  const std::string text = to_json(chain);
  const Chain read = chain_from_json(text);
  EXPECT_EQ(to_json(read), text);
  EXPECT_EQ(read.stores[0].capacity_bytes, 500);
  EXPECT_EQ(read.stores[1].capacity_bytes, kUnlimited);
  EXPECT_EQ(read.stages[1].options[1].store, 1);
  EXPECT_FALSE(read.holds_input);
  const auto path = std::filesystem::temp_directory_path() /
                    str("remat_chain_", getpid(), ".json");
  write_chain(path, chain);
  EXPECT_EQ(to_json(read_chain(path)), text);
  std::filesystem::remove(path);
}

TEST(Chain, BrokenJsonIsNamed) {
  const std::string good = to_json(full_chain());
  const auto with = [&](const std::string& old, const std::string& put) {
    std::string text = good;
    const size_t at = text.find(old);
    EXPECT_NE(at, std::string::npos) << old;
    text.replace(at, old.size(), put);
    return error_of([&] { chain_from_json(text, "a.json"); });
  };
  EXPECT_THAT(with("remat-chain", "remat-chian"),
              HasSubstr("format is \"remat-chian\"; it must be "
                        "\"remat-chain\""));
  EXPECT_THAT(with("\"version\": 1", "\"version\": 2"),
              HasSubstr("a newer one wrote the file"));
  EXPECT_THAT(with("\"version\": 1", "\"version\": 0"),
              HasSubstr("versions count from 1"));
  EXPECT_THAT(with("input_bytes", "input_byte"),
              HasSubstr("a.json: unknown field \"input_byte\"; did you mean "
                        "input_bytes?"));
  EXPECT_THAT(with("\"input_bytes\": 10,", ""),
              HasSubstr("input_bytes is absent; it is required"));
  EXPECT_THAT(with("\"store\": \"disk\"", "\"store\": \"dusk\""),
              HasSubstr("stage 1: option 1: store is \"dusk\"; the chain has "
                        "no store of that name; did you mean disk?"));
  EXPECT_THAT(with("\"saved_bytes\": 30", "\"saved_bytes\": \"30\""),
              HasSubstr("stage 0: saved_bytes is \"30\""));
  EXPECT_THAT(with("\"saved_bytes\": 30", "\"saved_bytes\": 3"),
              HasSubstr("stage 0: saved_bytes is 3; it includes"));
  EXPECT_THAT(with("{", "["), HasSubstr("a.json: line"));
  EXPECT_THAT(error_of([] {
                chain_from_json(R"({"format": "remat-chain", "version": 1,
                                    "input_bytes": 1, "stages": 3})",
                                "a.json");
              }),
              HasSubstr("stages is 3; it must be an array"));
}

RC_GTEST_PROP(Chain, AnyTextIsAChainOrAnError, (const std::string& text)) {
  try {
    chain_from_json(text);
  } catch (const UsageError&) {
  }
}

TEST(Stores, MovingTakesALatencyAndTheBytes) {
  Store store{.name = "s", .write_seconds = 1, .read_seconds = 2};
  EXPECT_EQ(write_seconds(store, 100), 1);
  store.write_bytes_per_second = 50;
  store.read_bytes_per_second = 25;
  EXPECT_EQ(write_seconds(store, 100), 3);
  EXPECT_EQ(read_seconds(store, 100), 6);
}

}  // namespace
}  // namespace remat::plan
