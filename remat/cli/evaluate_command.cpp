#include <cstdio>
#include <nlohmann/json.hpp>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/base/log.h"
#include "remat/cli/commands.h"
#include "remat/cli/common_flags.h"
#include "remat/data/records.h"
#include "remat/train/evaluation.h"
#include "remat/train/model_folder.h"

namespace remat::cli {
namespace {

void print_json(const train::Evaluation& evaluation,
                const std::vector<std::string>& labels) {
  const auto& metrics = evaluation.metrics;
  nlohmann::ordered_json json;
  json["examples"] = evaluation.examples;
  json["accuracy"] = metrics.accuracy;
  json["macro_f1"] = metrics.macro_f1;
  json["majority_accuracy"] = metrics.majority_accuracy;
  json["loss"] = evaluation.loss;
  json["seconds"] = evaluation.seconds;
  json["labels"] = nlohmann::ordered_json::object();
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto& entry = metrics.classes[i];
    json["labels"][labels[i]] = {{"precision", entry.precision},
                                 {"recall", entry.recall},
                                 {"f1", entry.f1},
                                 {"support", entry.support}};
  }
  std::printf("%s\n", json.dump().c_str());
}

void print_table(const train::Evaluation& evaluation,
                 const std::vector<std::string>& labels) {
  const auto& metrics = evaluation.metrics;
  std::printf("examples   %s\n", format_thousands(evaluation.examples).c_str());
  std::printf("accuracy   %.4f   (majority class %.4f)\n", metrics.accuracy,
              metrics.majority_accuracy);
  std::printf("macro-F1   %.4f\n", metrics.macro_f1);
  std::printf("loss       %.4f\n\n", evaluation.loss);
  std::printf("precision  recall      f1  support  label\n");
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto& entry = metrics.classes[i];
    std::printf("%9.4f  %6.4f  %6.4f  %7s  %s\n", entry.precision, entry.recall,
                entry.f1, format_thousands(entry.support).c_str(),
                labels[i].c_str());
  }
}

}  // namespace

int evaluate_command(const std::vector<std::string>& arguments) {
  std::string model_dir, test_file;
  data::RecordColumns columns;
  std::optional<int64_t> max_seq_length;
  int64_t batch_size = 8;
  CommonOptions common;
  Flags flags("evaluate", "Measures a trained classifier on labelled texts.");
  flags.group("Evaluation");
  flags.add("model", &model_dir, "DIR", "Output directory of remat train");
  flags.add("test-file", &test_file, "FILE", "Labelled texts, .jsonl or .csv");
  flags.add("text-column", &columns.text, "NAME", "Field of the text");
  flags.add("label-column", &columns.label, "NAME", "Field of the label");
  flags.add("max-seq-length", &max_seq_length, "TOKENS",
            "Longer texts are cut\n(default as in training)");
  flags.add("per-device-eval-batch-size", &batch_size, "N", "Texts in a batch");
  add_common_flags(flags, common);
  flags.set_examples(
      "Examples:\n"
      "  remat evaluate --model out --test-file test.jsonl\n"
      "  remat evaluate --model out --test-file test.csv --json\n\n"
      "macro-F1 is the plain mean of f1 over the labels that occur in the "
      "file\n"
      "or among the answers.");
  if (!flags.parse(arguments)) {
    return 0;
  }
  apply(common, "evaluate");
  flags.require("model", "the output directory of remat train.");
  flags.require("test-file", "a .jsonl or .csv file with texts and labels.");
  check_batch_size("evaluate", batch_size);

  const auto records = data::read_records(test_file, columns);
  const train::ModelFolder folder = train::load_model_folder(model_dir);
  const nn::BigBirdConfig& config = folder.model->config();
  const int64_t max_length =
      resolve_max_length("evaluate", max_seq_length, config, model_dir);
  const data::LabelSet labels(config.labels);
  const data::Dataset dataset =
      data::encode_records(records, folder.tokenizer, &labels, max_length,
                           *common.threads, test_file);
  say_truncated(dataset, test_file, max_length);
  const auto evaluation =
      train::evaluate(*folder.model, dataset, batch_size, folder.pad_id());
  if (common.json) {
    print_json(*evaluation, config.labels);
  } else {
    print_table(*evaluation, config.labels);
  }
  return 0;
}

}  // namespace remat::cli
