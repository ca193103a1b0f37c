#include "remat/train/model_folder.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "remat/base/error.h"
#include "remat/base/file.h"
#include "remat/io/safetensors.h"

namespace remat::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kWeights = "model.safetensors";
constexpr const char* kTokenizer = "spiece.model";
constexpr const char* kNewWeights = "model.safetensors.new";
constexpr std::string_view kPrefix = "bert.";
constexpr size_t kMostListed = 8;

bool is_head(std::string_view name) { return name.starts_with("classifier."); }

// Tables of indices that old versions of transformers saved with the weights.
bool is_buffer(std::string_view name) {
  return name.ends_with("position_ids") || name.ends_with("token_type_ids");
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostListed); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kMostListed) {
    text += str(" and ", names.size() - kMostListed, " more");
  }
  return text;
}

std::string shape(const at::Tensor& tensor) {
  std::string text = "[";
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(tensor.size(i));
  }
  return text + "]";
}

// The name under which the file holds the parameter; empty if it does not.
std::string name_in_file(const io::SafetensorsFile& file,
                         const std::string& name) {
  if (file.has(name)) {
    return name;
  }
  if (name.starts_with(kPrefix) && file.has(name.substr(kPrefix.size()))) {
    return name.substr(kPrefix.size());
  }
  return {};
}

void require_directory(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) {
    fail_usage("model", directory.string(), ": there is no such directory");
  }
}

void require_file(const fs::path& directory, const char* name) {
  require_directory(directory);
  std::error_code ignored;
  if (!fs::exists(directory / name, ignored)) {
    fail_usage("model", directory.string(), ": ", name,
               " is missing; a model folder has ", kConfig, ", ", kWeights,
               " and ", kTokenizer, ".");
  }
}

}  // namespace

int64_t padding_id(const data::Tokenizer& tokenizer,
                   const nn::BigBirdConfig& config) {
  const int64_t pad = tokenizer.special().pad;
  return pad >= 0 ? pad : config.pad_token_id;
}

nn::BigBirdConfig read_model_config(const fs::path& path) {
  std::error_code ignored;
  fs::path file = path;
  if (fs::is_directory(path, ignored)) {
    require_file(path, kConfig);
    file = path / kConfig;
  }
  return nn::parse_bigbird_config(read_file(file), file.string());
}

WeightsReport load_weights(const fs::path& directory,
                           nn::BigBirdClassifier& model, bool keep_head) {
  require_file(directory, kWeights);
  const std::string source = (directory / kWeights).string();
  const io::SafetensorsFile file(directory / kWeights);
  const auto parameters = model.named_parameters();
  const bool load_head =
      keep_head && std::any_of(parameters.begin(), parameters.end(),
                               [&](const auto& parameter) {
                                 return is_head(parameter.first) &&
                                        file.has(parameter.first);
                               });
  WeightsReport report;
  report.fresh_head = !load_head;
  std::vector<std::string> missing, misshapen;
  std::set<std::string> used;
  const c10::NoGradGuard no_grad;
  for (const auto& [name, parameter] : parameters) {
    const std::string stored = name_in_file(file, name);
    used.insert(stored);
    if (is_head(name) && !load_head) {
      continue;
    }
    if (stored.empty()) {
      (name.starts_with("bert.pooler.") ? report.fresh : missing)
          .push_back(name);
      continue;
    }
    const at::Tensor value = file.tensor(stored);
    if (value.sizes() != parameter.sizes()) {
      misshapen.push_back(str(stored, " is ", shape(value), " where ", kConfig,
                              " means ", shape(parameter)));
      continue;
    }
    parameter.copy_(value);
  }
  if (!missing.empty() || !misshapen.empty()) {
    fail_usage("model", source, ": ",
               missing.empty() ? "" : "missing: " + list(missing),
               missing.empty() || misshapen.empty() ? "" : "; ",
               misshapen.empty() ? "" : "other shapes: " + list(misshapen));
  }
  for (const std::string& name : file.names()) {
    if (!used.contains(name) && !is_buffer(name)) {
      report.unused.push_back(name);
    }
  }
  return report;
}

ModelFolder load_model_folder(const fs::path& directory) {
  for (const char* name : {kConfig, kWeights, kTokenizer}) {
    require_file(directory, name);
  }
  data::Tokenizer tokenizer = data::Tokenizer::load(directory / kTokenizer);
  const nn::BigBirdConfig config = read_model_config(directory);
  if (tokenizer.vocabulary() > config.vocab_size) {
    fail_usage("model", directory.string(), ": ", kTokenizer, " has ",
               tokenizer.vocabulary(), " pieces, but vocab_size in ", kConfig,
               " is ", config.vocab_size, "; they do not belong together.");
  }
  auto model = std::make_unique<nn::BigBirdClassifier>(config);
  const WeightsReport report = load_weights(directory, *model, true);
  if (report.fresh_head || !report.unused.empty()) {
    fail_usage("model", (directory / kWeights).string(), ": ",
               report.fresh_head
                   ? "the classifier is missing; this is a model to start "
                     "from: remat train --init-from " +
                         directory.string()
                   : "unexpected: " + list(report.unused));
  }
  return {std::move(model), std::move(tokenizer)};
}

ModelFolderWriter::ModelFolderWriter(fs::path directory,
                                     data::Tokenizer tokenizer,
                                     std::function<void()> replace_rest)
    : directory_(std::move(directory)),
      tokenizer_(std::move(tokenizer)),
      replace_rest_(std::move(replace_rest)) {}

void ModelFolderWriter::save(const nn::BigBirdClassifier& model) {
  make_directories(directory_);
  const fs::path fresh = directory_ / kNewWeights;
  std::error_code ignored;
  try {
    io::write_safetensors(fresh, model.named_parameters(), {{"format", "pt"}});
    if (!has_saved_) {
      // Never the configuration of one model beside the weights of another.
      fs::remove(directory_ / kWeights, ignored);
      if (replace_rest_) {
        replace_rest_();
      }
      write_file(directory_ / kConfig, nn::to_json(model.config()));
      tokenizer_.save(directory_ / kTokenizer);
    }
    fs::rename(fresh, directory_ / kWeights);
  } catch (const fs::filesystem_error& error) {
    fs::remove(fresh, ignored);
    fail("train", "cannot write ", (directory_ / kWeights).string(), ": ",
         error.code().message());
  } catch (...) {
    fs::remove(fresh, ignored);
    throw;
  }
  has_saved_ = true;
}

}  // namespace remat::train
