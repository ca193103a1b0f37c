// The module that links SentencePiece: see sentencepiece_library.h.
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <utility>

#include "remat/data/sentencepiece_library.h"

// A vector of ids is the form of all versions; the newest would rather have a
// span.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace remat::data {
namespace {

// SentencePiece's own or Abseil's, by version.
using Status =
    decltype(std::declval<const sentencepiece::SentencePieceProcessor&>()
                 .status());

std::string error_text(const Status& status) {
  return status.ok() ? std::string() : status.ToString();
}

class LoadedModel final : public SentencePiece {
 public:
  std::string load(const std::string& model) {
    return error_text(processor_.LoadFromSerializedProto(model));
  }

  std::string encode(std::string_view text,
                     std::vector<int>* ids) const override {
    return error_text(processor_.Encode({text.data(), text.size()}, ids));
  }
  std::string decode(const std::vector<int>& ids,
                     std::string* text) const override {
    return error_text(processor_.Decode(ids, text));
  }

  int size() const override { return processor_.GetPieceSize(); }
  int pad_id() const override { return processor_.pad_id(); }
  int bos_id() const override { return processor_.bos_id(); }
  int eos_id() const override { return processor_.eos_id(); }
  int unk_id() const override { return processor_.unk_id(); }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string>& lines) : lines_(lines) {}
  bool done() const override { return next_ >= lines_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return lines_[next_]; }
  Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  size_t next_ = 0;
};

}  // namespace

extern "C" {

SentencePiece* remat_load_sentencepiece(const std::string& model,
                                        std::string* error) {
  auto loaded = std::make_unique<LoadedModel>();
  *error = loaded->load(model);
  return error->empty() ? loaded.release() : nullptr;
}

void remat_train_sentencepiece(
    const std::unordered_map<std::string, std::string>& arguments,
    const std::vector<std::string>& lines, std::string* model,
    std::string* error) {
  Lines iterator(lines);
  *error = error_text(
      sentencepiece::SentencePieceTrainer::Train(arguments, &iterator, model));
}
}

}  // namespace remat::data
