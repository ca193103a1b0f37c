// Encoded examples, grouped and padded into batches.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "remat/data/records.h"
#include "remat/data/tokenizer.h"

namespace remat::data {

struct Example {
  std::vector<int64_t> ids;
  int64_t label = -1;
};

struct Dataset {
  std::vector<Example> examples;
  int64_t truncated = 0;  // how many texts were longer than max_length
};

// labels == nullptr: labels stay -1. Encodes with `threads` threads; the order
// and result do not depend on them.
Dataset encode_records(const std::vector<Record>& records,
                       const Tokenizer& tokenizer, const LabelSet* labels,
                       int64_t max_length, int64_t threads,
                       std::string_view source);

struct Batch {
  at::Tensor input_ids;       // [batch, length], int64, pad id at the right
  at::Tensor attention_mask;  // [batch, length], int64, 1 = real
  at::Tensor labels;          // [batch], int64
  int64_t tokens = 0;         // real ones
};

// The examples at `indices` as one batch, padded to the longest of them.
Batch make_batch(const Dataset& dataset, const std::vector<int64_t>& indices,
                 int64_t pad_id);

// The batches of one epoch as lists of indices: a permutation that depends on
// (seed, epoch) alone, cut into batches; the last may be smaller.
std::vector<std::vector<int64_t>> epoch_batches(int64_t examples,
                                                int64_t batch_size,
                                                uint64_t seed, int64_t epoch);

// In order of length, so that little is padded: for evaluation.
std::vector<std::vector<int64_t>> batches_by_length(const Dataset& dataset,
                                                    int64_t batch_size);

}  // namespace remat::data
