// Text to token ids and back, by SentencePiece.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace remat::data {

// Ids of the special tokens; -1 where the model has none.
struct SpecialTokens {
  int64_t pad = -1;
  int64_t bos = -1;
  int64_t eos = -1;
  int64_t cls = -1;
  int64_t sep = -1;
  int64_t mask = -1;
  int64_t unknown = -1;
};

struct TokenizerTraining {
  int64_t vocabulary = 4000;  // pieces, the special ones included
  // The scores differ in their last digits for another number, as SentencePiece
  // adds them up thread by thread: 1 gives the same model everywhere.
  int64_t threads = 1;
  uint64_t seed = 0;
  // No more than this much text is looked at, in bytes; evenly over the texts
  // (4 MiB take about ten seconds).
  int64_t max_bytes = 4 << 20;
};

// Immutable and thread-safe once loaded.
class Tokenizer {
 public:
  // A SentencePiece .model file. Throws UsageError naming the path.
  static Tokenizer load(const std::filesystem::path& path);

  // Trains a unigram model with the pieces <pad> 0, <s> 1, </s> 2, <unk> 3,
  // [CLS], [SEP], [MASK] and byte fallback. Throws UsageError if the texts are
  // too few for the vocabulary, naming the largest possible one. Runs of white
  // space count as one space, as in the models of BigBird and Pegasus.
  static Tokenizer train(const std::vector<std::string_view>& texts,
                         const TokenizerTraining& options);

  // The ids of the text alone: no special tokens are added.
  std::vector<int64_t> encode(std::string_view text) const;

  // [CLS] text [SEP], as BigBird and BERT expect a single text, cut to
  // max_length ids (the last kept one is then [SEP]). `truncated`, if given,
  // is set to whether anything was cut.
  std::vector<int64_t> encode_for_classification(std::string_view text,
                                                 int64_t max_length,
                                                 bool* truncated) const;
  std::string decode(const std::vector<int64_t>& ids) const;

  int64_t vocabulary() const;
  const SpecialTokens& special() const;

  // Writes the .model file, whole or not at all.
  void save(const std::filesystem::path& path) const;

 private:
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace remat::data
