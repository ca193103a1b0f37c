// A classifier as a folder that Hugging Face's tools read too: config.json,
// model.safetensors and the tokenizer, spiece.model.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "remat/data/tokenizer.h"
#include "remat/nn/bigbird.h"

namespace remat::train {

// The tokenizer's padding, or, where it has none, the configuration's.
int64_t padding_id(const data::Tokenizer& tokenizer,
                   const nn::BigBirdConfig& config);

struct ModelFolder {
  std::unique_ptr<nn::BigBirdClassifier> model;
  data::Tokenizer tokenizer;

  // What batches are padded with.
  int64_t pad_id() const { return padding_id(tokenizer, model->config()); }
};

// Throws UsageError that names the file for a missing or broken one, and lists
// every tensor that is missing, unexpected or of another shape than the
// configuration says.
ModelFolder load_model_folder(const std::filesystem::path& directory);

// config.json of a folder, or of a file itself.
nn::BigBirdConfig read_model_config(const std::filesystem::path& path);

struct WeightsReport {
  bool fresh_head = false;          // the classifier keeps its fresh weights
  std::vector<std::string> fresh;   // other tensors that the file lacks
  std::vector<std::string> unused;  // what the file has besides
};

// Copies the weights of directory/model.safetensors, with or without the
// prefix "bert.", into the model. Without keep_head, or where the file has no
// classifier, the head stays as it is; so does a pooler that the file lacks.
// Throws UsageError listing what else is missing or has another shape; the
// model is then partly loaded.
WeightsReport load_weights(const std::filesystem::path& directory,
                           nn::BigBirdClassifier& model, bool keep_head);

// Writes one model again and again as it gets better.
class ModelFolderWriter {
 public:
  // replace_rest is called in the first exchange, while the folder holds no
  // weights: for files that must not stand beside those of another model. It
  // may be called again if that exchange fails.
  ModelFolderWriter(std::filesystem::path directory, data::Tokenizer tokenizer,
                    std::function<void()> replace_rest = {});

  // The first call replaces what another run left in the folder, once the new
  // weights are complete on disk; each further one exchanges the weights in a
  // single rename. Killed at any moment, the folder holds a whole model or,
  // within the first exchange, none. Throws Error naming path and cause; the
  // model saved before is then still there.
  void save(const nn::BigBirdClassifier& model);

  const std::filesystem::path& directory() const { return directory_; }
  bool has_saved() const { return has_saved_; }

 private:
  std::filesystem::path directory_;
  data::Tokenizer tokenizer_;
  std::function<void()> replace_rest_;
  bool has_saved_ = false;
};

}  // namespace remat::train
