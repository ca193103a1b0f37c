#include "remat/cli/train_setup.h"

#include <ATen/Context.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/base/log.h"
#include "remat/data/records.h"
#include "remat/train/model_folder.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCommand = "train";

struct Texts {
  std::vector<data::Record> train;
  std::vector<data::Record> validation;
};

Texts read_texts(const TrainRequest& request) {
  const data::RecordColumns columns{request.text_column, request.label_column,
                                    true};
  Texts texts;
  texts.train = data::read_records(request.train_file, columns);
  if (!request.validation_file.empty()) {
    texts.validation = data::read_records(request.validation_file, columns);
  }
  return texts;
}

// Before anything is looked for in it.
void check_init_from(const TrainRequest& request) {
  std::error_code ignored;
  if (!request.init_from.empty() &&
      !fs::is_directory(request.init_from, ignored)) {
    fail_usage(kCommand, "--init-from ", request.init_from,
               ": there is no such directory; give a folder with config.json, "
               "model.safetensors and spiece.model.");
  }
}

// The tokenizer file that belongs to the model; "" where one must be trained.
std::string find_tokenizer(const TrainRequest& request) {
  if (!request.tokenizer.empty()) {
    return request.tokenizer;
  }
  std::error_code ignored;
  for (const std::string& folder : {request.init_from, request.model}) {
    const fs::path file = fs::path(folder) / "spiece.model";
    if (!folder.empty() && fs::exists(file, ignored)) {
      return file.string();
    }
  }
  if (!request.init_from.empty()) {
    fail_usage(kCommand, "--init-from ", request.init_from,
               " has no spiece.model, and its weights mean nothing without "
               "their tokenizer; name it with --tokenizer FILE.");
  }
  return {};
}

data::Tokenizer make_tokenizer(const TrainRequest& request,
                               const std::string& file,
                               const std::vector<data::Record>& records,
                               const nn::BigBirdConfig& config) {
  if (!file.empty()) {
    if (request.vocab_size.has_value()) {
      fail_usage(kCommand, "--vocab-size is for a tokenizer that is trained; ",
                 file, " is used. Leave one of them out.");
    }
    return data::Tokenizer::load(file);
  }
  data::TokenizerTraining training;
  training.vocabulary = request.vocab_size.value_or(config.vocab_size);
  training.threads = *request.common.threads;
  training.seed = static_cast<uint64_t>(request.options.seed);
  if (training.vocabulary < 1 || training.vocabulary > 10'000'000) {
    fail_usage(kCommand, "--vocab-size is ", training.vocabulary,
               "; it must be from 1 to 10,000,000 (4000 suits small models).");
  }
  say("data",
      str("training a tokenizer of ", format_thousands(training.vocabulary),
          " pieces on ", request.train_file));
  std::vector<std::string_view> texts;
  for (const data::Record& record : records) {
    texts.push_back(record.text);
  }
  return data::Tokenizer::train(texts, training);
}

void fit_vocabulary(nn::BigBirdConfig& config, bool is_trained,
                    const std::string& tokenizer_file,
                    const data::Tokenizer& tokenizer) {
  if (is_trained) {
    config.vocab_size = tokenizer.vocabulary();
    config.pad_token_id = tokenizer.special().pad;
    config.bos_token_id = tokenizer.special().bos;
    config.eos_token_id = tokenizer.special().eos;
    config.sep_token_id = tokenizer.special().sep;
  } else if (tokenizer.vocabulary() > config.vocab_size) {
    fail_usage(kCommand, tokenizer_file, " has ", tokenizer.vocabulary(),
               " pieces, but vocab_size in the model's config.json is ",
               config.vocab_size, "; it must be at least as large.");
  }
}

bool are_placeholders(const std::vector<std::string>& labels) {
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] != str("LABEL_", i)) {
      return false;
    }
  }
  return true;
}

// The labels of the head that the run starts from. They are in the folder of
// the weights: --model may name another configuration, of other labels or of
// the same in another order. Empty where that folder does not tell.
std::vector<std::string> labels_of_head(const TrainRequest& request,
                                        const nn::BigBirdConfig& config) {
  if (request.init_from.empty() || request.model.empty()) {
    return config.labels;
  }
  std::error_code ignored;
  if (!fs::exists(fs::path(request.init_from) / "config.json", ignored)) {
    return {};
  }
  return train::read_model_config(request.init_from).labels;
}

// Labels that a model was trained for keep their order, so that its head keeps
// its meaning. Returns whether the head can be kept.
bool choose_labels(nn::BigBirdConfig& config,
                   const std::vector<std::string>& labels_of_head,
                   const data::LabelSet& labels) {
  std::vector<std::string> known = labels_of_head;
  std::vector<std::string> ours = labels.names();
  std::sort(known.begin(), known.end());
  std::sort(ours.begin(), ours.end());
  if (known == ours) {
    config.labels = labels_of_head;
    return true;
  }
  config.labels = labels.names();
  return known.size() == ours.size() && are_placeholders(labels_of_head);
}

void check_labels(const std::vector<data::Record>& records,
                  const data::LabelSet& labels, const std::string& source) {
  for (const data::Record& record : records) {
    labels.index(record, source);
  }
}

void start_from(const std::string& folder, bool keep_head,
                nn::BigBirdClassifier& model) {
  const train::WeightsReport report =
      train::load_weights(folder, model, keep_head);
  if (report.fresh_head) {
    say("train", str("the classifier's head starts from fresh weights: ",
                     folder, keep_head ? " has none" : " has other labels"));
  }
  for (const std::string& name : report.fresh) {
    say("train",
        str(name, " starts from fresh weights: ", folder, " lacks it"));
  }
  if (!report.unused.empty()) {
    say("train", str(report.unused.size(), " tensors of ", folder,
                     " are not used: ", report.unused.front(),
                     report.unused.size() > 1 ? ", ..." : ""));
  }
}

}  // namespace

TrainJob set_up(TrainRequest& request) {
  check_init_from(request);
  nn::BigBirdConfig config = train::read_model_config(
      request.model.empty() ? request.init_from : request.model);
  request.max_seq_length =
      resolve_max_length(kCommand, request.max_seq_length, config, "");
  const std::string tokenizer_file = find_tokenizer(request);

  Texts texts = read_texts(request);
  const data::LabelSet found =
      data::LabelSet::of(texts.train, request.train_file);
  check_labels(texts.validation, found, request.validation_file);
  const bool keep_head =
      choose_labels(config, labels_of_head(request, config), found);
  const data::LabelSet labels(config.labels);

  TrainJob job;
  job.tokenizer = std::make_unique<data::Tokenizer>(
      make_tokenizer(request, tokenizer_file, texts.train, config));
  fit_vocabulary(config, tokenizer_file.empty(), tokenizer_file,
                 *job.tokenizer);
  job.pad_id = train::padding_id(*job.tokenizer, config);

  const auto encode = [&](std::vector<data::Record>& records,
                          const std::string& source) {
    data::Dataset dataset = data::encode_records(
        records, *job.tokenizer, &labels, *request.max_seq_length,
        *request.common.threads, source);
    say_truncated(dataset, source, *request.max_seq_length);
    // The texts are not needed again, and may be large.
    std::vector<data::Record>().swap(records);
    return dataset;
  };
  job.train_set = encode(texts.train, request.train_file);
  if (!request.validation_file.empty()) {
    job.validation_set = encode(texts.validation, request.validation_file);
  }

  at::manual_seed(static_cast<uint64_t>(request.options.seed));
  job.model = std::make_unique<nn::BigBirdClassifier>(config);
  if (!request.init_from.empty()) {
    start_from(request.init_from, keep_head, *job.model);
  }
  return job;
}

}  // namespace remat::cli
