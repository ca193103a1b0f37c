// Schedules as files, and the simulator that judges them.
#include "remat/plan/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "remat/plan/simulator.h"
#include "tests/plan/oracles.h"

namespace remat::plan {
namespace {

using ::testing::HasSubstr;
using enum ActionKind;

Chain two_stages() {
  Chain chain = equal_chain(2, 10, 30);
  chain.stores = {{.name = "host",
                   .capacity_values = 1,
                   .write_seconds = 3,
                   .read_seconds = 4}};
  chain.stages[0].options = {{.name = "away",
                              .saved_bytes = 5,
                              .extra_forward_seconds = 1,
                              .extra_backward_seconds = 1,
                              .store = 0,
                              .stored_bytes = 25}};
  return chain;
}

std::string refusal(std::vector<Action> actions,
                    const Chain& chain = two_stages()) {
  return error_of(
      [&] { simulate(chain, {.stages = 2, .actions = std::move(actions)}); });
}

TEST(Schedule, JsonKeepsEveryAction) {
  Schedule schedule{.stages = 3, .actions = {}};
  for (int kind = 0; kind < kActionKinds; ++kind) {
    schedule.actions.push_back({static_cast<ActionKind>(kind), kind % 3});
  }
  schedule.actions[3].stage = 0;
  schedule.actions[0].way = 2;
  schedule.actions[5].store = 1;
  EXPECT_EQ(schedule_from_json(to_json(schedule)), schedule);
  EXPECT_EQ(to_text(schedule), "Fa0.2 Fc1 Fn2 L B1 S2 R0 X1 Xa2 Xs0");
}

TEST(Schedule, BrokenJsonIsNamed) {
  const auto with = [](const std::string& actions) {
    return error_of([&] {
      schedule_from_json(R"({"format": "remat-schedule", "version": 1,
                             "stages": 2, "actions": )" +
                             actions + "}",
                         "s.json");
    });
  };
  EXPECT_THAT(with(R"([{"do": "loss"}, {"do": "backwards", "stage": 1}])"),
              HasSubstr("s.json: action 1: do is \"backwards\"; no action is "
                        "called that; did you mean backward?"));
  EXPECT_THAT(with(R"([{"do": "free"}])"),
              HasSubstr("action 0: stage is absent; it is required"));
  EXPECT_THAT(with(R"([{"do": "free", "stage": 3}])"),
              HasSubstr("stage is 3; it must be from 0 to 2"));
  EXPECT_THAT(with(R"([{"do": "free", "stage": 1, "way": 64}])"),
              HasSubstr("way is 64; it must be from 0 to 63"));
  EXPECT_THAT(with(R"([{"do": "free", "stage": 1, "stor": 1}])"),
              HasSubstr("unknown field \"stor\"; did you mean store?"));
  EXPECT_THAT(with("7"), HasSubstr("actions is 7; it must be an array"));
}

RC_GTEST_PROP(Schedule, AnyTextIsAScheduleOrAnError,
              (const std::string& text)) {
  try {
    schedule_from_json(text);
  } catch (const UsageError&) {
  }
}

TEST(Simulator, TellsWhatIsThereAndWhatItTakes) {
  const Chain chain = two_stages();
  const auto run = simulate(chain, {.stages = 2,
                                    .actions = {{kForwardKeep, 0},
                                                {kForwardSave, 1},
                                                {kLoss},
                                                {kBackward, 1},
                                                {kForwardSave, 0, 1},
                                                {kFree, 1},
                                                {kBackward, 0}}});
  EXPECT_EQ(run.seconds, 9);
  EXPECT_EQ(run.recompute_seconds, 1);
  EXPECT_EQ(run.option_seconds, 2);
  EXPECT_EQ(run.recomputed, (std::vector<int>{1, 0}));
  // Input, x_1, saved state of stage 1, two gradients.
  EXPECT_EQ(run.peak_bytes, 10 + 10 + 30 + 10 + 10);
  EXPECT_EQ(run.peak_action, 3);
  ASSERT_EQ(run.timeline.size(), 7u);
  EXPECT_EQ(run.timeline[3].bytes, (std::array<int64_t, 5>{0, 20, 30, 20, 0}));
  EXPECT_EQ(run.timeline[4].total_bytes, 10 + 10 + 10 + 5);
  EXPECT_EQ(run.stores[0].peak_bytes, 25);
  EXPECT_EQ(run.stores[0].writes, 1);
}

TEST(Simulator, MovesValuesToStoresAndBack) {
  Chain chain = two_stages();
  chain.holds_input = false;
  const auto run = simulate(chain, {.stages = 2,
                                    .actions = {{kStore, 0, 0, 0},
                                                {kForwardDrop, 0},
                                                {kForwardSave, 1},
                                                {kLoss},
                                                {kBackward, 1},
                                                {kFetch, 0, 0, 0},
                                                {kFreeStored, 0, 0, 0},
                                                {kForwardSave, 0},
                                                {kBackward, 0}}});
  EXPECT_EQ(run.transfer_seconds, 7);
  EXPECT_EQ(run.seconds, 7 + 1 + 6);
  EXPECT_EQ(run.stores[0].reads, 1);
  EXPECT_EQ(run.stores[0].peak_values, 1);
}

TEST(Simulator, NamesTheStepThatIsWrong) {
  const Action save0{kForwardSave, 0};
  const Action save1{kForwardSave, 1};
  const std::vector<std::pair<std::vector<Action>, std::string>> cases = {
      {{save1}, "step 0 (forward_save 1): needs x_1, which is not on the"},
      {{{kForwardKeep, 0}, {kForwardKeep, 0}},
       "step 1 (forward_keep 0): x_1 is on the device already"},
      {{{kForwardDrop, 0}},
       "step 0 (forward_drop 0): the input of the chain is held"},
      {{{kForwardKeep, 2}},
       "step 0 (forward_keep 2): the chain has 2 stages, counted from 0"},
      {{{kFree, 3}}, "step 0 (free 3): the chain has 2 stages"},
      {{{kForwardSave, 0, 2}},
       "step 0 (forward_save 0): way 2 is unknown; the stage has 2"},
      {{save0, save0},
       "step 1 (forward_save 0): the saved state of the stage "
       "is there already"},
      {{{kForwardKeep, 0}, {kForwardSave, 0, 1}},
       "step 1 (forward_save 0): x_1 is on the device already"},
      {{{kLoss}}, "step 0 (loss): needs x_2"},
      {{save0, save1, {kLoss}, {kLoss}},
       "step 3 (loss): the loss has been computed"},
      {{save0, {kBackward, 0}},
       "step 1 (backward 0): needs the gradient of x_1; the loss has not been "
       "computed"},
      {{save0, save1, {kLoss}, {kBackward, 0}},
       "step 3 (backward 0): needs the gradient of x_1; that of x_2 is there"},
      {{save0, {kForwardKeep, 1}, {kLoss}, {kBackward, 1}},
       "step 3 (backward 1): the saved state of the stage is not there"},
      {{save0, save1, {kFreeSaved, 0}, {kLoss}, {kBackward, 1}},
       "step 4 (backward 1): needs x_1, which is not on the device"},
      {{{kFree, 1}}, "step 0 (free 1): x_1 is not on the device as a value"},
      {{{kFree, 0}}, "step 0 (free 0): the input of the chain is held"},
      {{{kFreeSaved, 1}},
       "step 0 (free_saved 1): no saved state of the stage is there"},
      {{{kStore, 1, 0, 0}}, "step 0 (store 1): needs x_1"},
      {{{kStore, 0, 0, 1}},
       "step 0 (store 0): the chain has 1 stores, counted "
       "from 0; there is no store 1"},
      {{{kStore, 0, 0, 0}, {kStore, 0, 0, 0}},
       "step 1 (store 0): x_0 is in the store already"},
      {{{kStore, 0, 0, 0}, {kForwardKeep, 0}, {kStore, 1, 0, 0}},
       "step 2 (store 1): store 0 (host) would hold 20 bytes in 2 values; it "
       "has room for 1 values"},
      {{{kFetch, 0, 0, 0}}, "step 0 (fetch 0): x_0 is not in the store"},
      {{{kStore, 0, 0, 0}, {kFetch, 0, 0, 0}},
       "step 1 (fetch 0): x_0 is on the device already"},
      {{{kFreeStored, 0, 0, 0}},
       "step 0 (free_stored 0): x_0 is not in the store"},
      {{save0, save1}, "the schedule ends before the loss"},
      {{save0, save1, {kLoss}, {kBackward, 1}},
       "the schedule ends before the backward of stage 0"},
  };
  for (const auto& [actions, text] : cases) {
    EXPECT_THAT(refusal(actions), HasSubstr("[plan] " + text));
  }
  EXPECT_THAT(
      error_of([] { simulate(two_stages(), {.stages = 3, .actions = {}}); }),
      HasSubstr("the schedule is for 3 stages; the chain has 2"));
}

}  // namespace
}  // namespace remat::plan
