// What layers keep and how long they take, against formulas written by hand.
#include "remat/estimate/stages.h"

#include <gtest/gtest.h>

#include "tests/estimate/configs.h"

namespace remat::estimate {
namespace {

constexpr int64_t kWidth = 768, kInner = 3072, kHeads = 12;

Shape shape_of(AttentionKind attention, Dtype dtype, bool is_sparse = false) {
  Shape shape;
  shape.length = 2048;
  shape.batch = 3;
  shape.dtype = dtype;
  shape.attention = attention;
  shape.is_sparse = is_sparse;
  return shape;
}

constexpr int64_t kTokens = 3 * 2048;
// Probabilities of full attention.
constexpr int64_t kScores = 3 * kHeads * 2048 * 2048;

int64_t saved(const Model& model, const Shape& shape) {
  return layer_tape(model, shape).memory().saved_bytes;
}

TEST(Layers, BigBirdWithItsKernel) {
  // q, k, v, attention, two sums before norms, the middle and the output; both
  // sides of the activation; maximum and sum of each head, mean and deviation
  // of two norms. No mask.
  const Shape shape =
      shape_of(AttentionKind::kFused, Dtype::kFloat32, /*is_sparse=*/true);
  Model model = model_of(kBigBirdBase);
  EXPECT_EQ(saved(model, shape),
            kTokens * (4 * (8 * kWidth + 2 * kInner) + 4 * 2 * kHeads + 16));
  // ReLU's result is the next product's input too.
  model.activation = "relu";
  EXPECT_EQ(saved(model, shape),
            kTokens * (4 * (8 * kWidth + kInner) + 4 * 2 * kHeads + 16));
}

TEST(Layers, BigBirdInTensorOperations) {
  // 32 blocks: two see all, thirty see eight, next to the ends seven.
  const int64_t seen = 2 * 32 + 30 * 8 - 2;
  const Model model = model_of(kBigBirdBase);
  const int64_t gathered = 3 * seen * 64 * kWidth;
  const int64_t pairs = 3 * kHeads * seen * 64 * 64;
  Shape shape =
      shape_of(AttentionKind::kGathered, Dtype::kFloat32, /*is_sparse=*/true);
  EXPECT_EQ(seen_blocks(model, shape).total(), seen);
  // Gathered queries, the result, four more of the width and the inner two.
  EXPECT_EQ(saved(model, shape),
            4 * (kTokens * (6 * kWidth + 2 * kInner) + 2 * gathered + pairs) +
                16 * kTokens);
  // Of halves the softmax is kept in float32, and once more in the dtype.
  shape.dtype = Dtype::kBFloat16;
  EXPECT_EQ(saved(model, shape),
            2 * (kTokens * (6 * kWidth + 2 * kInner) + 2 * gathered + pairs) +
                4 * pairs + 16 * kTokens);
  // On a CPU all of it is computed in float32 from the start.
  shape.attends_in_float = true;
  EXPECT_EQ(saved(model, shape),
            2 * kTokens * (5 * kWidth + 2 * kInner) +
                4 * (kTokens * kWidth + 2 * gathered + pairs) + 16 * kTokens);
}

TEST(Layers, BertInTensorOperations) {
  Model model = model_of(kBertBase);
  const Shape shape = shape_of(AttentionKind::kProbabilities, Dtype::kFloat32);
  // Softmax, its dropout and the mask; two more masks of a byte a number.
  EXPECT_EQ(saved(model, shape),
            kTokens * (4 * (8 * kWidth + 2 * kInner) + 2 * kWidth + 16) +
                kScores * (4 + 4 + 1));
  model.attention_dropout = 0;
  model.hidden_dropout = 0;
  EXPECT_EQ(saved(model, shape),
            kTokens * (4 * (8 * kWidth + 2 * kInner) + 16) + kScores * 4);
}

TEST(Layers, Gpt2KeepsFiveOfTheInnerSizeForItsGelu) {
  const Model model = model_of(kGpt2);
  EXPECT_EQ(
      saved(model, shape_of(AttentionKind::kProbabilities, Dtype::kFloat32)),
      kTokens * (4 * (8 * kWidth + 5 * kInner) + 2 * kWidth + 16) +
          kScores * 9);
  EXPECT_EQ(
      saved(model, shape_of(AttentionKind::kFused, Dtype::kBFloat16)),
      kTokens * (2 * (8 * kWidth + 5 * kInner) + 2 * kWidth + 16 + 4 * kHeads));
}

TEST(Layers, Embeddings) {
  const Shape shape = shape_of(AttentionKind::kFused, Dtype::kFloat32);
  const auto saved_by_embeddings = [&](const char* config) {
    return embeddings_tape(model_of(config), shape).memory().saved_bytes;
  };
  // The norm's input and output; Hugging Face's with a mask; GPT-2's has no
  // norm.
  EXPECT_EQ(saved_by_embeddings(kBigBirdBase), kTokens * (4 * 2 * kWidth + 8));
  EXPECT_EQ(saved_by_embeddings(kBertBase),
            kTokens * (4 * 2 * kWidth + 8 + kWidth));
  EXPECT_EQ(saved_by_embeddings(kGpt2), kTokens * (4 * kWidth + kWidth));
}

TEST(Layers, WorkspaceOfALayerWithItsKernel) {
  const Shape shape =
      shape_of(AttentionKind::kFused, Dtype::kFloat32, /*is_sparse=*/true);
  const Tape::Memory memory =
      layer_tape(model_of(kBigBirdBase), shape).memory();
  // The last projection and its dropout, while the norm runs.
  EXPECT_EQ(memory.forward_workspace_bytes, 4 * kTokens * 2 * kWidth);
  // At the last projection: the gradients of its output, of its input and of
  // the residual; the norm's input and statistics are gone, and so is the
  // gradient of the layer's output.
  EXPECT_EQ(memory.backward_workspace_bytes,
            4 * kTokens * (kWidth + kInner + kWidth - kWidth) - 8 * kTokens -
                4 * kTokens * 2 * kWidth);
}

TEST(Layers, WorkspaceOfALayerThatGathersItsBlocks) {
  Model model = model_of(kBigBirdBase);
  model.intermediate_size = 64;
  const Shape shape =
      shape_of(AttentionKind::kGathered, Dtype::kFloat32, /*is_sparse=*/true);
  const int64_t size = kTokens * kWidth;
  const int64_t gathered_by_ends = 3 * 2 * 32 * 64 * kWidth;
  const int64_t gathered_by_others = 3 * (30 * 8 - 2) * 64 * kWidth;
  const int64_t pairs_of_ends = 3 * kHeads * 2 * 32 * 64 * 64;
  const int64_t pairs_of_others = 3 * kHeads * (30 * 8 - 2) * 64 * 64;
  const int64_t queries_of_ends = 3 * 2 * 64 * kWidth;
  // At the scores of the many: q, k, v, which the caller holds, and their
  // copies; all that the few keep, and their result; queries and keys of the
  // many, and their scores before scale, after it and with the bias.
  const int64_t peak = 6 * size + 2 * queries_of_ends + 2 * gathered_by_ends +
                       pairs_of_ends + (size - queries_of_ends) +
                       gathered_by_others + 3 * pairs_of_others;
  const Tape::Memory memory = layer_tape(model, shape).memory();
  EXPECT_EQ(memory.saved_bytes + memory.forward_workspace_bytes, 4 * peak);
}

TEST(Layers, TimeIsThatOfTheProductsOnAMachineThatMovesForFree) {
  const Tape::Rates rates{.flops_per_second = 1e12, .bytes_per_second = 1e30};
  const double tokens = kTokens, width = kWidth, inner = kInner;
  const double products = 2 * tokens * (4 * width * width + 2 * width * inner);
  const Shape sparse =
      shape_of(AttentionKind::kFused, Dtype::kFloat32, /*is_sparse=*/true);
  const Tape bigbird = layer_tape(model_of(kBigBirdBase), sparse);
  const double attention = 4.0 * 3 * (2 * 32 + 30 * 8 - 2) * 64 * 64 * width;
  EXPECT_NEAR(bigbird.forward_seconds(rates), (products + attention) / 1e12,
              1e-12);
  EXPECT_NEAR(bigbird.backward_seconds(rates),
              (2 * products + 2.5 * attention) / 1e12, 1e-12);
  const Tape bert =
      layer_tape(model_of(kBertBase),
                 shape_of(AttentionKind::kProbabilities, Dtype::kFloat32));
  EXPECT_NEAR(bert.forward_seconds(rates),
              (products + 4.0 * 3 * 2048 * 2048 * width) / 1e12, 1e-12);
}

TEST(Layers, TimeIsThatOfMovingOnAMachineThatComputesForFree) {
  const Tape::Rates rates{.flops_per_second = 1e30, .bytes_per_second = 1e9};
  const Shape shape =
      shape_of(AttentionKind::kFused, Dtype::kFloat32, /*is_sparse=*/true);
  const double tokens = kTokens, width = kWidth, inner = kInner;
  // Products 10, attention 4, dropouts 4, sums 6 and norms 4 of the width;
  // products 2 and the activation 2 of the inner size; the weights.
  EXPECT_NEAR(layer_tape(model_of(kBigBirdBase), shape).forward_seconds(rates),
              4e-9 * (tokens * (28 * width + 4 * inner) + 4 * width * width +
                      2 * width * inner),
              1e-9);
}

TEST(Heads, ALanguageModelHoldsItsLogitsFourTimes) {
  const Shape shape = shape_of(AttentionKind::kFused, Dtype::kBFloat16);
  const HeadCost gpt2 = head_cost(model_of(kGpt2), shape);
  EXPECT_EQ(gpt2.workspace_bytes,
            2 * kTokens * (2 * kWidth + 4 * int64_t{50257}));
  EXPECT_DOUBLE_EQ(gpt2.flops, 6.0 * kTokens * kWidth * 50257);
  // A classifier looks at one token of each text.
  const HeadCost bert = head_cost(model_of(kBertBase), shape);
  EXPECT_EQ(bert.workspace_bytes, 2 * 3 * (6 * kWidth + 4 * 2));
}

}  // namespace
}  // namespace remat::estimate
