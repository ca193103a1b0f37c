#include "remat/runtime/print_saved.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <sstream>

#include "remat/runtime/checkpoint.h"

namespace remat {
namespace {

using ::testing::HasSubstr;

TEST(SavedTensors, NamesWhoSavedWhat) {
  const at::Tensor x = at::randn({16, 8}).requires_grad_();
  const at::Tensor w = at::randn({8, 8}).requires_grad_();
  const auto saved = saved_tensors(
      [w](const at::Tensor& t) { return at::mm(t, w.t()).sin().exp().sum(); },
      x);
  ASSERT_EQ(saved.size(), 4u);
  EXPECT_EQ(saved[0].saved_by, "aten::mm");
  EXPECT_EQ(saved[1].saved_by, "aten::mm");
  // In the order of libtorch's own code: whichever comes first.
  const bool input_first = saved[0].kind == SavedKind::kInput;
  EXPECT_EQ(saved[input_first ? 0 : 1].kind, SavedKind::kInput);
  EXPECT_EQ(saved[input_first ? 1 : 0].kind, SavedKind::kParameter);
  EXPECT_EQ(saved[input_first ? 1 : 0].bytes, 8 * 8 * 4);
  for (const size_t i : {2, 3}) {
    EXPECT_EQ(saved[i].saved_by, i == 2 ? "aten::sin" : "aten::exp");
    EXPECT_EQ(saved[i].kind, SavedKind::kComputed);
    EXPECT_EQ(saved[i].bytes, 16 * 8 * 4);
    EXPECT_EQ(saved[i].sizes, (std::vector<int64_t>{16, 8}));
    EXPECT_EQ(saved[i].dtype, "Float");
  }
}

TEST(SavedTensors, OneMemoryCountsOnce) {
  const at::Tensor x = at::randn({16}).requires_grad_();
  const auto saved = saved_tensors(
      [](const at::Tensor& t) {
        const at::Tensor y = t.exp();
        return y.view({4, 4}) * y.view({4, 4});
      },
      x);
  ASSERT_EQ(saved.size(), 3u);
  EXPECT_EQ(saved[0].bytes, 64);
  EXPECT_EQ(saved[1].bytes, 0);
  EXPECT_EQ(saved[2].bytes, 0);
}

TEST(SavedTensors, OfRegionsOnlyTheInputs) {
  const at::Tensor x = at::randn({16}).requires_grad_();
  const auto saved = saved_tensors(
      [](const at::Tensor& t) {
        return checkpoint([](const at::Tensor& u) { return u.sin().exp(); },
                          t * 2);
      },
      x);
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(saved[0].saved_by, "");
  EXPECT_EQ(saved[0].kind, SavedKind::kComputed);
}

// It leaves no hook and no observer behind, and the graph it made still works.
TEST(SavedTensors, LeavesNothingBehind) {
  const at::Tensor x = at::randn({16}).requires_grad_();
  at::Tensor y;
  saved_tensors(
      [&y](const at::Tensor& t) {
        y = t.sin().exp();
        return y;
      },
      x);
  EXPECT_TRUE(at::equal(torch::autograd::grad({y.sum()}, {x})[0],
                        torch::autograd::grad({x.sin().exp().sum()}, {x})[0]));
}

TEST(PrintSaved, IsATableWithSums) {
  const at::Tensor x = at::randn({256, 4}).requires_grad_();
  std::ostringstream out;
  print_saved_table(
      out, saved_tensors([](const at::Tensor& t) { return t.sin().exp(); }, x));
  EXPECT_THAT(out.str(), HasSubstr("     bytes  what      tensor"));
  EXPECT_THAT(out.str(),
              HasSubstr("4.00 KiB  input     Float[256, 4]  aten::sin"));
  EXPECT_THAT(out.str(), HasSubstr("computed  Float[256, 4]  aten::exp"));
  EXPECT_THAT(out.str(), HasSubstr("2 tensors keep 8.00 KiB, 4.00 KiB of it"));
}

}  // namespace
}  // namespace remat
