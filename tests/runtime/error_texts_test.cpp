// What each misuse says, word for word: the operation, the value, the remedy.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <thread>

#include "remat/base/error.h"
#include "remat/runtime/checkpoint.h"
#include "remat/runtime/checkpoint_graph.h"
#include "remat/runtime/dropout.h"
#include "remat/runtime/layer_selection.h"
#include "remat/runtime/recompute_group.h"
#include "remat/runtime/sequential.h"
#include "tests/runtime/helpers.h"

namespace remat {
namespace {

using ::testing::ThrowsMessage;
using torch::autograd::grad;

at::Tensor leaf() { return at::ones({2, 3}).requires_grad_(); }

TEST(ErrorTexts, LayerSelection) {
  EXPECT_THAT([] { every_nth_layer(-1, 2); },
              ThrowsMessage<UsageError>(
                  "[layers] there are -1 layers; it must be 0 or more"));
  EXPECT_THAT([] { every_nth_layer(4, 0); },
              ThrowsMessage<UsageError>("[layers] every_n_layers is 0; it must "
                                        "be 1 (every layer) or more"));
  EXPECT_THAT([] { listed_layers(4, {4}); },
              ThrowsMessage<UsageError>("[layers] layer 4 is listed; there are "
                                        "4 layers, counted from 0"));
  EXPECT_THAT(
      [] {
        listed_layers(4, {1, 1});
      },
      ThrowsMessage<UsageError>("[layers] layer 1 is listed twice"));
  EXPECT_THAT(
      [] { equal_segments(4, 5); },
      ThrowsMessage<UsageError>("[layers] 5 segments of 4 layers; there "
                                "must be from 1 to as many as layers"));
  const std::vector<at::Tensor (*)(const at::Tensor&)> layers(3, at::sin);
  EXPECT_THAT([&] { checkpoint_layers(layers, {true}, leaf()); },
              ThrowsMessage<UsageError>(
                  "[layers] the choice is of 1 layers; there are 3"));
}

TEST(ErrorTexts, Dropout) {
  EXPECT_THAT(
      [] { stateless_dropout(leaf(), 1.5, 1); },
      ThrowsMessage<UsageError>("[dropout] p is 1.5; it must be from 0 to 1"));
  EXPECT_THAT(
      [] { stateless_dropout(at::ones({2}, at::kLong), 0.5, 1); },
      ThrowsMessage<UsageError>(
          "[dropout] x is Long[2]; it must be of a floating-point type"));
}

TEST(ErrorTexts, GroupsAndPolicies) {
  const RecomputeGroup group;
  EXPECT_THAT([] { const RecomputeGroup inner; },
              ThrowsMessage<UsageError>(
                  "[checkpoint] a RecomputeGroup begins inside another one of "
                  "this thread; groups do not nest"));
  EXPECT_THAT([] { policy::operators({"aten::mn"}); },
              ThrowsMessage<UsageError>(
                  "[policy] there is no operator aten::mn; names are those of "
                  "ATen, such as aten::mm or aten::sum.dim_IntList"));
}

constexpr const char* kRemedy =
    "\nCheckpointOptions::debug(true) names the first operator that differs.";

// Runs one function in forward and another when recomputed.
template <class First, class Again>
std::string recomputed(const CheckpointOptions& options, First first,
                       Again again) {
  int runs = 0;
  const at::Tensor out = checkpoint(
      options,
      [&](const at::Tensor& t) { return runs++ == 0 ? first(t) : again(t); },
      leaf());
  return error_of([&] { out.sum().backward(); });
}

TEST(ErrorTexts, RecomputationsThatDiffer) {
  const auto two = [](const at::Tensor& t) { return t.sin().exp(); };
  const auto one = [](const at::Tensor& t) { return t.sin() * 1.0; };
  const auto three = [](const at::Tensor& t) { return t.sin().exp().tanh(); };
  EXPECT_EQ(recomputed({}, two, one),
            std::string("[checkpoint] a region saved 1 tensors when it was "
                        "recomputed, 2 in forward. A region must compute the "
                        "same again.") +
                kRemedy);
  EXPECT_EQ(recomputed(CheckpointOptions().early_stop(false).name("layer 3"),
                       two, three),
            std::string("[checkpoint] the region \"layer 3\" saved 3 tensors "
                        "when it was recomputed, only 2 in forward. A region "
                        "must compute the same again.") +
                kRemedy);
  const auto other_shape = [](const at::Tensor& t) {
    return t.narrow(0, 0, 1).to(at::kDouble).sin().exp();
  };
  EXPECT_EQ(recomputed({}, two, other_shape),
            std::string("[checkpoint] a region saved other tensors when it was "
                        "recomputed:\n"
                        "  tensor 0: Float[2, 3] on cpu in forward, Double[1, "
                        "3] on cpu recomputed\n"
                        "  tensor 1: Float[2, 3] on cpu in forward, Double[1, "
                        "3] on cpu recomputed\n"
                        "A region must compute the same again: no state from "
                        "outside that changes, no random numbers but ATen's "
                        "and remat's.") +
                kRemedy);
  const auto other_values = [](const at::Tensor& t) { return t.cos().exp(); };
  EXPECT_EQ(
      recomputed(
          CheckpointOptions().determinism_check(DeterminismCheck::kValues), two,
          other_values),
      std::string("[checkpoint] a region saved other tensors when it was "
                  "recomputed:\n"
                  "  tensor 1, Float[2, 3] on cpu: other values than in "
                  "forward\n"
                  "A region must compute the same again: no state from outside "
                  "that changes, no random numbers but ATen's and remat's.") +
          kRemedy);
  EXPECT_EQ(
      recomputed(CheckpointOptions().policy(policy::operators({"aten::sin"})),
                 two, other_values),
      "[checkpoint] a region ran aten::cos as its operator 0 when it was "
      "recomputed; in forward that was aten::sin, whose result its policy "
      "kept. A region must compute the same again.");
}

TEST(ErrorTexts, ChangesInPlace) {
  const at::Tensor x = leaf() * 1.0;
  at::Tensor out;
  EXPECT_EQ(error_of([&] {
              checkpoint(
                  CheckpointOptions().name("block"),
                  [&](at::Tensor t) {
                    out = t.sin().exp();
                    return t.mul_(2.0);
                  },
                  x);
            }),
            "[checkpoint] the region \"block\" changed its input 0, Float[2, "
            "3], in place (version 0 before, 1 after), and could not be "
            "recomputed. Let it work on a copy: input.clone(), or set "
            "clone_inputs(true).");
  EXPECT_EQ(error_of([&] { out.sum().backward(); }),
            "[checkpoint] the region \"block\" changed an input in place, and "
            "cannot be recomputed");

  // With an early stop the change does not happen again, and all is well.
  const at::Tensor late = checkpoint(
      CheckpointOptions().early_stop(false),
      [](const at::Tensor& t) {
        at::Tensor y = t.sin().exp();
        const at::Tensor z = y * y;
        y.add_(1.0);
        return z;
      },
      leaf());
  EXPECT_EQ(
      error_of([&] { late.sum().backward(); }),
      "[checkpoint] a region: tensor 2, Float[2, 3], was changed in place "
      "after autograd saved it: version 0 then, 1 now. Change a copy "
      "instead.");
}

TEST(ErrorTexts, GraphsThatDiffer) {
  const at::Tensor x = leaf();
  for (const bool read_again : {false, true}) {
    at::Tensor state = at::ones({2, 3});
    const at::Tensor lost = checkpoint_graph(
        policy::nothing(),
        [&](const at::Tensor& t) {
          const at::Tensor y = (t + state).sin();
          std::thread([&] { state.mul_(2.0); }).join();
          return read_again ? y + state : y;
        },
        x);
    EXPECT_EQ(error_of([&] { lost.sum().backward(); }),
              "[checkpoint_graph] a value that the recomputation starts from "
              "was changed in place where no operator of this thread was seen "
              "to do it, and is not there any more. Give the function a copy "
              "of it: tensor.clone().");
  }
}

}  // namespace
}  // namespace remat
