#include "remat/data/tokenizer_training.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/base/philox.h"
#include "remat/data/sentencepiece_library.h"
#include "remat/data/utf8.h"

namespace remat::data {
namespace {

constexpr size_t kMaxLine = 4000;
// 7 special pieces, 256 bytes and at least one of the text.
constexpr int64_t kLeastVocabulary = 264;
constexpr int64_t kMostVocabulary = 1'000'000;

void append_lines(std::string_view text, size_t max_line,
                  std::vector<std::string>& lines) {
  std::string line;
  size_t space = 0;  // behind the last white space of the line
  const auto finish = [&](size_t length) {
    if (line.find_first_not_of(" \t") < length) {
      lines.push_back(line.substr(0, length));
    }
    line.erase(0, length);
    space = 0;
  };
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text, i);
    const std::string_view character = text.substr(i, length);
    i += std::max<size_t>(length, 1);
    if (character == "\n" || character == "\r") {
      finish(line.size());
      continue;
    }
    // SentencePiece passes over lines with U+2585, which it uses itself.
    if (length == 0 || character == "\0" || character == "\xE2\x96\x85") {
      continue;
    }
    while (!line.empty() && line.size() + length > max_line) {
      finish(space > 0 ? space : line.size());
    }
    line += character;
    if (character == " " || character == "\t") {
      space = line.size();
    }
  }
  finish(line.size());
}

// What SentencePiece's trainer accepts.
constexpr int64_t kMostThreads = 128;

void check_options(const TokenizerTraining& options) {
  if (options.vocabulary < kLeastVocabulary ||
      options.vocabulary > kMostVocabulary) {
    fail_usage("tokenizer", "the vocabulary is ", options.vocabulary,
               "; it must be between ", kLeastVocabulary, " and ",
               format_thousands(kMostVocabulary));
  }
  if (options.threads < 1 || options.max_bytes < 1) {
    fail_usage("tokenizer", "training with ", options.threads,
               " threads on at most ", options.max_bytes,
               " bytes; both must be at least 1");
  }
}

// The number behind `before` in a message of SentencePiece, or -1.
int64_t number_after(const std::string& message, std::string_view before) {
  const size_t found = message.find(before);
  if (found == std::string::npos) {
    return -1;
  }
  int64_t value = -1;
  for (size_t i = found + before.size();
       i < message.size() && message[i] >= '0' && message[i] <= '9' &&
       value < kMostVocabulary;
       ++i) {
    value = std::max<int64_t>(value, 0) * 10 + (message[i] - '0');
  }
  return value;
}

}  // namespace

std::vector<std::string> training_lines(
    const std::vector<std::string_view>& texts, int64_t max_bytes,
    uint64_t seed, size_t max_line) {
  uint64_t total = 0;
  for (const std::string_view text : texts) {
    total += text.size();
  }
  const auto most = static_cast<uint64_t>(max_bytes);
  std::vector<std::string> lines;
  for (size_t i = 0; i < texts.size(); ++i) {
    std::string_view window = texts[i];
    if (total > most) {
      const double share =
          static_cast<double>(most) / static_cast<double>(total);
      const auto length =
          static_cast<size_t>(static_cast<double>(window.size()) * share);
      const uint64_t begin =
          derive_seed(seed, i) % (window.size() - length + 1);
      window = window.substr(begin, length);
    }
    append_lines(window, max_line, lines);
  }
  return lines;
}

std::string train_sentencepiece(const std::vector<std::string_view>& texts,
                                const TokenizerTraining& options) {
  check_options(options);
  const std::vector<std::string> lines =
      training_lines(texts, options.max_bytes, options.seed, kMaxLine);
  if (lines.empty()) {
    fail_usage("tokenizer", "there is no text to train on");
  }
  const std::unordered_map<std::string, std::string> arguments = {
      {"model_type", "unigram"},
      {"vocab_size", str(options.vocabulary)},
      {"pad_id", "0"},
      {"bos_id", "1"},
      {"eos_id", "2"},
      {"unk_id", "3"},
      {"control_symbols", "[CLS],[SEP],[MASK]"},
      {"byte_fallback", "true"},
      {"max_sentence_length", str(4 * kMaxLine)},
      {"num_threads", str(std::min<int64_t>(options.threads, kMostThreads))},
      {"minloglevel", "2"}};
  std::string model;
  const std::string message =
      run_sentencepiece_trainer(arguments, lines, &model);
  if (!message.empty()) {
    const int64_t largest = number_after(message, "value <= ");
    if (largest >= 0) {
      fail_usage("tokenizer", "a vocabulary of ", options.vocabulary,
                 " is too large for ", format_thousands(lines.size()),
                 " lines of text; the largest possible is ", largest);
    }
    fail_usage("tokenizer", "cannot train on ", format_thousands(lines.size()),
               " lines of text: ", message);
  }
  return model;
}

}  // namespace remat::data
