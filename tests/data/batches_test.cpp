#include "remat/data/batches.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <rapidcheck/gtest.h>
#include <algorithm>
#include <set>

#include "tests/data/thrown_text.h"

namespace remat::data {
namespace {

Dataset dataset_of(const std::vector<std::vector<int64_t>>& ids) {
  Dataset dataset;
  for (const auto& one : ids) {
    dataset.examples.push_back(
        {one, static_cast<int64_t>(dataset.examples.size())});
  }
  return dataset;
}

Tokenizer fixture() {
  return Tokenizer::load(REMAT_GOLDEN_DIR "/tokenizers/spiece.model");
}

TEST(Batches, PadAtTheRight) {
  const Dataset dataset = dataset_of({{5, 6, 7}, {8}, {9, 10}});
  const Batch batch = make_batch(dataset, {1, 2}, 3);
  EXPECT_TRUE(at::equal(batch.input_ids,
                        at::tensor({8, 3, 9, 10}, at::kLong).view({2, 2})));
  EXPECT_TRUE(at::equal(batch.attention_mask,
                        at::tensor({1, 0, 1, 1}, at::kLong).view({2, 2})));
  EXPECT_TRUE(at::equal(batch.labels, at::tensor({1, 2}, at::kLong)));
  EXPECT_EQ(batch.tokens, 3);
}

TEST(Batches, NameWhatIsWrong) {
  const Dataset dataset = dataset_of({{5, 6, 7}, {8}});
  EXPECT_EQ(thrown_text([&] { make_batch(dataset, {}, 0); }),
            "[data] a batch of no examples");
  EXPECT_EQ(thrown_text([&] {
              make_batch(dataset, {0, 2}, 0);
            }),
            "[data] example 2 of 2");
  EXPECT_EQ(thrown_text([&] {
              make_batch(dataset, {0, 1}, -1);
            }),
            "[data] the tokenizer has no <pad>, so texts of different lengths "
            "cannot stand in one batch; use a batch size of 1");
  EXPECT_EQ(make_batch(dataset, {0}, -1).tokens, 3);
  EXPECT_EQ(thrown_text([] { epoch_batches(4, 0, 1, 0); }),
            "[data] the batch size is 0; it must be at least 1");
  EXPECT_EQ(thrown_text([] { epoch_batches(-4, 1, 1, 0); }),
            "[data] the number of examples is -4");
}

RC_GTEST_PROP(Batches, OfAnEpochAreAPermutation, ()) {
  const auto examples = *rc::gen::inRange<int64_t>(0, 200);
  const auto batch_size = *rc::gen::inRange<int64_t>(1, 20);
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const auto epoch = *rc::gen::inRange<int64_t>(0, 1000);
  const auto batches = epoch_batches(examples, batch_size, seed, epoch);
  std::set<int64_t> seen;
  for (size_t i = 0; i < batches.size(); ++i) {
    const auto size = static_cast<int64_t>(batches[i].size());
    RC_ASSERT((i + 1 < batches.size() ? size == batch_size : size >= 1));
    seen.insert(batches[i].begin(), batches[i].end());
  }
  RC_ASSERT(static_cast<int64_t>(seen.size()) == examples);
  RC_ASSERT(
      (seen.empty() || (*seen.begin() == 0 && *seen.rbegin() < examples)));
  RC_ASSERT(batches == epoch_batches(examples, batch_size, seed, epoch));
}

TEST(Batches, DifferBetweenEpochsAndSeeds) {
  const auto order = [](uint64_t seed, int64_t epoch) {
    return epoch_batches(100, 100, seed, epoch)[0];
  };
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
  // The same order whatever the batch size.
  std::vector<int64_t> joined;
  for (const auto& batch : epoch_batches(100, 7, 1, 0)) {
    joined.insert(joined.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(order(1, 0), joined);
}

TEST(Batches, ShuffleEvenly) {
  // 10,000 draws for 10 places: far from 1,000 each only if there is a bias.
  std::vector<int> count(10);
  for (int64_t epoch = 0; epoch < 10'000; ++epoch) {
    ++count[static_cast<size_t>(epoch_batches(10, 1, 7, epoch)[3][0])];
  }
  for (const int times : count) {
    EXPECT_NEAR(times, 1000, 150);
  }
}

TEST(Batches, ByLengthPadLittle) {
  const Dataset dataset = dataset_of({{1, 2, 3}, {1}, {1, 2}, {2}});
  EXPECT_EQ(batches_by_length(dataset, 2),
            (std::vector<std::vector<int64_t>>{{1, 3}, {2, 0}}));
}

TEST(EncodeRecords, DoesNotDependOnThreads) {
  std::vector<Record> records;
  for (int i = 0; i < 100; ++i) {
    std::string text = "the";
    for (int word = 0; word < i % 13; ++word) {
      text += " quick fox";
    }
    records.push_back({text, i % 3 == 0 ? "b" : "a"});
  }
  const LabelSet labels({"a", "b"});
  const Tokenizer tokenizer = fixture();
  const auto one = encode_records(records, tokenizer, &labels, 40, 1, "a.csv");
  for (const int64_t threads : {2, 7, 200}) {
    const auto many =
        encode_records(records, tokenizer, &labels, 40, threads, "a.csv");
    EXPECT_EQ(many.truncated, one.truncated);
    for (size_t i = 0; i < records.size(); ++i) {
      EXPECT_EQ(many.examples[i].ids, one.examples[i].ids);
      EXPECT_EQ(many.examples[i].label, one.examples[i].label);
    }
  }
  EXPECT_EQ(one.examples[3].label, 1);
  EXPECT_GT(one.truncated, 0);
  EXPECT_LT(one.truncated, 100);
  EXPECT_EQ(encode_records(records, tokenizer, nullptr, 40, 2, "a.csv")
                .examples[3]
                .label,
            -1);
}

TEST(EncodeRecords, NamesWhatIsWrong) {
  const Tokenizer tokenizer = fixture();
  const LabelSet labels({"a", "b"});
  const auto text = [&](int64_t length, int64_t threads, const char* label) {
    return thrown_text([&] {
      encode_records({{"t", "a"}, {"u", label}}, tokenizer, &labels, length,
                     threads, "v.csv");
    });
  };
  EXPECT_EQ(text(10, 0, "a"),
            "[data] the number of threads is 0; it must be at least 1");
  EXPECT_EQ(text(10, 2, "z"),
            "[data] v.csv: the label \"z\" does not occur in training; the "
            "known labels are \"a\", \"b\"");
  EXPECT_EQ(text(2, 2, "a"),
            "[tokenizer] the maximal length is 2; it must be at least 3: "
            "[CLS], one piece and [SEP]");
}

}  // namespace
}  // namespace remat::data
