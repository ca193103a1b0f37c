#include "remat/plan/stage_names.h"

#include <gtest/gtest.h>

namespace remat::plan {
namespace {

TEST(StageNames, NumbersBecomeRanges) {
  EXPECT_EQ(
      join_stage_names({"embeddings", "layer 0 attention", "layer 1 attention",
                        "layer 2 attention", "layer 5 attention", "head"}),
      "embeddings, layer 0-2, 5 attention and head");
  EXPECT_EQ(join_stage_names({"layer 7", "layer 8"}), "layer 7, 8");
  EXPECT_EQ(join_stage_names({"layer 9", "head", "layer 10", "layer 11"}),
            "layer 9-11 and head");
}

TEST(StageNames, OtherFamiliesStayApart) {
  EXPECT_EQ(join_stage_names({"layer 0 attention", "layer 0 feed-forward",
                              "layer 1 attention"}),
            "layer 0, 1 attention and layer 0 feed-forward");
  EXPECT_EQ(join_stage_names({"layer", "layer 1"}), "layer and layer 1");
  EXPECT_EQ(join_stage_names({"a 1 b 1", "a 1 b 2"}), "a 1 b 1 and a 1 b 2");
}

TEST(StageNames, AnyNameIsTaken) {
  EXPECT_EQ(join_stage_names({}), "");
  EXPECT_EQ(join_stage_names({""}), "");
  EXPECT_EQ(join_stage_names({"head", "head"}), "head");
  EXPECT_EQ(join_stage_names({"3", "3", "1"}), "1, 3");
  EXPECT_EQ(join_stage_names({"at 99999999999999999999"}),
            "at 99999999999999999999");
}

}  // namespace
}  // namespace remat::plan
