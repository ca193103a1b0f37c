// From the flags of `remat train` to what the training loop takes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "remat/cli/common_flags.h"
#include "remat/data/batches.h"
#include "remat/data/tokenizer.h"
#include "remat/nn/bigbird.h"
#include "remat/train/train_options.h"

namespace remat::cli {

struct TrainRequest {
  std::string train_file;
  std::string validation_file;
  std::string text_column = "text";
  std::string label_column = "label";
  std::string model;
  std::string init_from;
  std::string tokenizer;
  std::optional<int64_t> vocab_size;
  std::optional<int64_t> max_seq_length;
  std::string output_dir;
  bool overwrite_output_dir = false;
  std::optional<int64_t> every_n_layers;
  std::string memory;
  std::string profile_cache;
  train::TrainOptions options;
  CommonOptions common;
};

struct TrainJob {
  std::unique_ptr<nn::BigBirdClassifier> model;
  std::unique_ptr<data::Tokenizer> tokenizer;
  data::Dataset train_set;
  std::optional<data::Dataset> validation_set;
  int64_t pad_id = 0;
};

// Reads every file and builds the model; writes nothing. Sets what the request
// left open (max_seq_length). Throws UsageError for whatever is wrong.
TrainJob set_up(TrainRequest& request);

}  // namespace remat::cli
