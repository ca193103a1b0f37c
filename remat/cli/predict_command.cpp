#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "remat/base/error.h"
#include "remat/base/file.h"
#include "remat/base/log.h"
#include "remat/base/suggest.h"
#include "remat/cli/commands.h"
#include "remat/cli/common_flags.h"
#include "remat/data/records.h"
#include "remat/train/evaluation.h"
#include "remat/train/model_folder.h"

namespace remat::cli {
namespace {

// How many labels a line names.
constexpr size_t kShown = 3;

struct PredictRequest {
  std::string model;
  std::string file;
  std::string format;
  std::string text_column = "text";
};

std::string find_format(const PredictRequest& request) {
  const std::vector<std::string> formats{"text", "jsonl", "csv"};
  if (!request.format.empty()) {
    if (std::find(formats.begin(), formats.end(), request.format) ==
        formats.end()) {
      fail_usage("predict", "--format is ", request.format,
                 "; it must be text, jsonl or csv",
                 did_you_mean(request.format, formats));
    }
    return request.format;
  }
  std::string ending = std::filesystem::path(request.file).extension().string();
  for (char& c : ending) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return ending == ".csv"                          ? "csv"
         : ending == ".jsonl" || ending == ".json" ? "jsonl"
                                                   : "text";
}

// A text as a record, through the reader that checks it.
std::vector<data::Record> one_record(const std::string& text,
                                     const std::string& source) {
  if (text.find_first_not_of(" \t\r\n\f\v") == std::string::npos) {
    fail_usage("predict", source, " is empty; there is nothing to classify.");
  }
  try {
    return data::parse_records(nlohmann::json{{"text", text}}.dump(), "jsonl",
                               source, {"text", "", false});
  } catch (const nlohmann::json::type_error& error) {
    // dump() refuses invalid UTF-8 and tells the byte.
    const std::string what = error.what();
    fail_usage("predict", source, ": ", what.substr(what.find(']') + 2),
               ". Texts must be UTF-8.");
  }
}

std::vector<data::Record> read_input(const PredictRequest& request) {
  const bool is_stdin = request.file.empty() || request.file == "-";
  const std::string source = is_stdin ? "standard input" : request.file;
  const std::string text = read_file(is_stdin ? "/dev/stdin" : request.file);
  const std::string format = find_format(request);
  if (format == "text") {
    return one_record(text, source);
  }
  return data::parse_records(text, format, source,
                             {request.text_column, "", false});
}

void print_answer(const std::vector<double>& probabilities,
                  const std::vector<std::string>& labels, bool as_json) {
  std::vector<size_t> order(labels.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return probabilities[a] > probabilities[b];
  });
  if (as_json) {
    nlohmann::ordered_json json;
    json["label"] = labels[order[0]];
    json["probability"] = probabilities[order[0]];
    json["probabilities"] = nlohmann::ordered_json::object();
    for (const size_t i : order) {
      json["probabilities"][labels[i]] = probabilities[i];
    }
    std::printf("%s\n", json.dump().c_str());
    return;
  }
  std::printf("%s  %.4f", labels[order[0]].c_str(), probabilities[order[0]]);
  for (size_t i = 1; i < std::min(order.size(), kShown); ++i) {
    std::printf("%s%s %.4f", i == 1 ? "  (" : ", ", labels[order[i]].c_str(),
                probabilities[order[i]]);
  }
  std::printf(order.size() > 1 ? ")\n" : "\n");
}

}  // namespace

int predict_command(const std::vector<std::string>& arguments) {
  PredictRequest request;
  std::optional<int64_t> max_seq_length;
  int64_t batch_size = 8;
  CommonOptions common;
  Flags flags("predict",
              "Classifies texts: prints the likeliest label of each, its "
              "probability,\nand the next two.");
  flags.add_argument("FILE", &request.file,
                     "One text, or .jsonl or .csv with many\n(default "
                     "standard input)");
  flags.group("Prediction");
  flags.add("model", &request.model, "DIR", "Output directory of remat train");
  flags.add("format", &request.format, "KIND",
            "text, jsonl or csv\n(default by the file's ending, or text)");
  flags.add("text-column", &request.text_column, "NAME",
            "Field of the text in .jsonl and .csv");
  flags.add("max-seq-length", &max_seq_length, "TOKENS",
            "Longer texts are cut\n(default as in training)");
  flags.add("per-device-eval-batch-size", &batch_size, "N", "Texts in a batch");
  add_common_flags(flags, common);
  flags.set_examples(
      "Examples:\n"
      "  man ls | remat predict --model out\n"
      "  remat predict --model out reviews.jsonl --json > answers.jsonl\n\n"
      "With --json each text gives one line: label, probability and\n"
      "probabilities.");
  if (!flags.parse(arguments)) {
    return 0;
  }
  apply(common, "predict");
  flags.require("model", "the output directory of remat train.");
  check_batch_size("predict", batch_size);

  const auto records = read_input(request);
  const train::ModelFolder folder = train::load_model_folder(request.model);
  const nn::BigBirdConfig& config = folder.model->config();
  const int64_t max_length =
      resolve_max_length("predict", max_seq_length, config, request.model);
  const std::string source =
      request.file.empty() ? "standard input" : request.file;
  const data::Dataset dataset = data::encode_records(
      records, folder.tokenizer, nullptr, max_length, *common.threads, source);
  say_truncated(dataset, source, max_length);
  for (const auto& probabilities :
       train::predict(*folder.model, dataset, batch_size, folder.pad_id())) {
    print_answer(probabilities, config.labels, common.json);
  }
  return 0;
}

}  // namespace remat::cli
