#include "remat/estimate/estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remat/plan/bounds.h"
#include "remat/plan/solve.h"
#include "tests/estimate/configs.h"

namespace remat::estimate {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

Workload work_of(int64_t length, int64_t batch, Dtype dtype = Dtype::kFloat32) {
  Workload work;
  work.sequence_length = length;
  work.batch_size = batch;
  work.dtype = dtype;
  return work;
}

Device cpu() {
  Device device;
  device.name = "cpu";
  device.memory_bytes = 8'000'000'000;
  device.memory_bytes_per_second = 2e10;
  device.flops_per_second = {1e11, 1e11, 0};
  device.is_cpu = true;
  return device;
}

TEST(Estimate, IsAChainOfEmbeddingsLayersAndLoss) {
  const Model model = model_of(kBigBirdBase);
  const Estimate made = estimate(model, cpu(), work_of(4096, 2));
  const plan::Chain& chain = made.chain;
  ASSERT_EQ(chain.length(), 13);
  EXPECT_EQ(chain.stages[0].name, "embeddings");
  EXPECT_EQ(chain.stages[12].name, "layer 11");
  EXPECT_EQ(chain.stages[12].output_bytes, 4 * 2 * 4096 * 768);
  // Ids, mask and types; the mask once for keys and once for queries.
  EXPECT_EQ(chain.input_bytes, 2 * 4096 * (3 * 8 + 2 * 4));
  const int64_t total = 128'060'930, unused = 768 * 768 + 768;
  EXPECT_EQ(made.parameters.total, total);
  EXPECT_EQ(made.weights_bytes, 4 * total);
  EXPECT_EQ(made.gradients_bytes, 4 * (total - unused));
  EXPECT_EQ(made.optimizer_bytes, 8 * (total - unused));
  EXPECT_EQ(chain.fixed_bytes, 16 * total - 12 * unused);
  EXPECT_GT(chain.loss.seconds, 0);
}

TEST(Estimate, HalvesHaveAFloatCopyOfTheWeightsInTheOptimizer) {
  const Estimate made = estimate(model_of(kGpt2), find_known_device("h100-80g"),
                                 work_of(1024, 8, Dtype::kBFloat16));
  EXPECT_EQ(made.weights_bytes, 2 * int64_t{124'439'808});
  EXPECT_EQ(made.chain.fixed_bytes, 16 * int64_t{124'439'808});
  EXPECT_THAT(made.assumptions,
              Contains(HasSubstr("a copy of the weights in float32")));
}

TEST(Estimate, TiedWeightsGetTwoGradients) {
  Model model = model_of(kGpt2);
  const auto workspace = [&] {
    const Estimate made = estimate(model, cpu(), work_of(16, 1));
    return made.chain.stages[0].backward_workspace_bytes;
  };
  const int64_t tied = workspace();
  model.ties_embeddings = false;
  EXPECT_EQ(tied - workspace(), 4 * 50257 * 768);
}

TEST(Estimate, TimesAreSharesOfThePeaks) {
  Device device = cpu();
  device.matrix_efficiency = device.memory_efficiency = 1;
  const Model model = model_of(kBertBase);
  const Estimate best = estimate(model, device, work_of(512, 4));
  device.matrix_efficiency = device.memory_efficiency = 0.25;
  const Estimate quarter = estimate(model, device, work_of(512, 4));
  EXPECT_NEAR(plan::least_seconds(quarter.chain),
              4 * plan::least_seconds(best.chain), 1e-9);
}

TEST(Estimate, AttentionIsWhatRunsThere) {
  const Model bigbird = model_of(kBigBirdBase);
  const auto saved = [&](const Device& device, Dtype dtype,
                         Attention attention) {
    Workload work = work_of(4096, 1, dtype);
    work.attention = attention;
    return estimate(bigbird, device, work).chain.stages[1].saved_bytes;
  };
  const Device h100 = find_known_device("h100-80g");
  const int64_t fused = saved(cpu(), Dtype::kFloat32, Attention::kAutomatic);
  // The kernel is for CPUs in float32.
  EXPECT_EQ(saved(cpu(), Dtype::kFloat32, Attention::kFused), fused);
  EXPECT_EQ(saved(h100, Dtype::kFloat32, Attention::kFused), fused);
  EXPECT_GT(saved(h100, Dtype::kFloat32, Attention::kAutomatic), 2 * fused);
  EXPECT_EQ(saved(h100, Dtype::kFloat32, Attention::kAutomatic),
            saved(cpu(), Dtype::kFloat32, Attention::kEager));
  EXPECT_GT(saved(cpu(), Dtype::kBFloat16, Attention::kAutomatic),
            saved(h100, Dtype::kBFloat16, Attention::kAutomatic));
}

TEST(Estimate, ShortTextsAttendInFullAndLongOnesArePadded) {
  const Model model = model_of(kBigBirdBase);
  // (5 + 2 * 3) * 64 tokens is the last length that attends in full.
  const Estimate full = estimate(model, cpu(), work_of(704, 1));
  EXPECT_EQ(full.padded_length, 704);
  EXPECT_THAT(full.assumptions, Contains(HasSubstr("attend in full")));
  EXPECT_EQ(estimate(model, cpu(), work_of(705, 1)).padded_length, 768);
  EXPECT_EQ(estimate(model, cpu(), work_of(100, 1)).padded_length, 100);
}

TEST(Estimate, OffloadIsAnOptionOfEachStage) {
  Workload work = work_of(1024, 4, Dtype::kBFloat16);
  work.offload = Offload::kHost;
  const Device h100 = find_known_device("h100-80g");
  const Estimate made = estimate(model_of(kGpt2), h100, work);
  ASSERT_EQ(made.chain.stores.size(), 1u);
  EXPECT_EQ(made.chain.stores[0].name, "host");
  EXPECT_DOUBLE_EQ(made.chain.stores[0].write_bytes_per_second, 0.8 * 64e9);
  for (const plan::Stage& stage : made.chain.stages) {
    ASSERT_EQ(stage.options.size(), 1u);
    const plan::StageOption& option = stage.options[0];
    EXPECT_EQ(option.stored_bytes, stage.saved_bytes - stage.output_bytes);
    EXPECT_DOUBLE_EQ(option.extra_forward_seconds,
                     static_cast<double>(option.stored_bytes) / (0.8 * 64e9));
  }
}

TEST(Estimate, MoreOfAnythingNeedsMore) {
  const Device h100 = find_known_device("h100-80g");
  for (const char* config : {kBertBase, kBigBirdBase, kGpt2}) {
    const Model model = model_of(config);
    int64_t memory = 0;
    double seconds = 0;
    for (const int64_t batch : {1, 2, 5}) {
      const plan::Chain chain =
          estimate(model, h100, work_of(512, batch)).chain;
      EXPECT_GT(plan::keep_all_bytes(chain), memory);
      EXPECT_GT(plan::least_seconds(chain), seconds);
      memory = plan::keep_all_bytes(chain);
      seconds = plan::least_seconds(chain);
      EXPECT_LT(plan::least_budget(chain), memory);
    }
    const plan::Chain halves =
        estimate(model, h100, work_of(512, 5, Dtype::kBFloat16)).chain;
    EXPECT_LT(plan::keep_all_bytes(halves), memory);
    EXPECT_LT(plan::least_seconds(halves), seconds);
  }
}

TEST(Estimate, ErrorsNameFieldValueAndRemedy) {
  const Model bert = model_of(kBertBase);
  const auto complaint = [&](const Model& model, const Device& device,
                             const Workload& work) {
    return error_of([&] { estimate(model, device, work, "--"); });
  };
  EXPECT_EQ(complaint(bert, cpu(), work_of(513, 1)),
            "[plan] --seq-length is 513; the model has positions for 512 "
            "tokens. For longer texts raise max_position_embeddings in its "
            "config.json and train the new positions");
  EXPECT_EQ(complaint(bert, cpu(), work_of(0, 1)),
            "[plan] --seq-length is 0; a text has at least 1 token");
  EXPECT_EQ(complaint(bert, cpu(), work_of(1, 0)),
            "[plan] --batch-size is 0; it must be from 1 to 1,048,576");
  EXPECT_EQ(complaint(bert, cpu(), work_of(1, int64_t{1} << 40)),
            "[plan] --batch-size is 1099511627776; it must be from 1 to "
            "1,048,576");
  EXPECT_EQ(complaint(bert, find_known_device("v100-32g"),
                      work_of(1, 1, Dtype::kBFloat16)),
            "[plan] --dtype is bfloat16; v100-32g has no rate of matrix "
            "products for it; use float32 or float16");
  Workload offloaded = work_of(1, 1);
  offloaded.offload = Offload::kDisk;
  EXPECT_EQ(complaint(bert, find_known_device("v100-32g"), offloaded),
            "[plan] --offload is disk; v100-32g has no disk rate; give a "
            "device file with disk_bytes_per_second");
  Model odd = model_of(kBigBirdBase);
  odd.max_positions = 4100;
  EXPECT_EQ(complaint(odd, cpu(), work_of(4100, 1)),
            "[plan] --seq-length is 4,100; padded to whole blocks of 64 it is "
            "4,160, and the model has positions for 4,100 tokens");
  Model endless = bert;
  endless.max_positions = int64_t{1} << 30;
  EXPECT_THAT(complaint(endless, cpu(), work_of(int64_t{1} << 30, 1 << 20)),
              HasSubstr("bytes, more than 2^56; use shorter texts"));
}

TEST(Estimate, ChoicesByName) {
  EXPECT_EQ(parse_attention("--attention", "fused"), Attention::kFused);
  EXPECT_EQ(error_of([] { parse_attention("--attention", "fussed"); }),
            "[plan] --attention is fussed; it must be automatic, fused or "
            "eager; did you mean fused?");
  EXPECT_EQ(parse_offload("--offload", "disk"), Offload::kDisk);
  EXPECT_EQ(error_of([] { parse_offload("--offload", "hots"); }),
            "[plan] --offload is hots; it must be none, host or disk; did you "
            "mean host?");
}

}  // namespace
}  // namespace remat::estimate
