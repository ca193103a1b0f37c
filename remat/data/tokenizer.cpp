#include "remat/data/tokenizer.h"

#include <algorithm>

#include "remat/base/error.h"
#include "remat/base/file.h"
#include "remat/data/sentencepiece_library.h"
#include "remat/data/sentencepiece_model.h"
#include "remat/data/tokenizer_training.h"

namespace remat::data {

struct Tokenizer::Impl {
  std::unique_ptr<SentencePiece> processor;
  SpecialTokens special;
  std::string model;  // as it was read or trained, for save()

  Impl(std::string bytes, std::string_view source) : model(std::move(bytes)) {
    const std::vector<ModelPiece> pieces = model_pieces(model);
    if (pieces.empty()) {
      fail_usage("tokenizer", source, " is not a SentencePiece model");
    }
    std::string error;
    processor = load_sentencepiece(with_control_pieces(model), &error);
    if (processor == nullptr) {
      fail_usage("tokenizer", source,
                 " is not a usable SentencePiece model: ", error);
    }
    find_special(pieces);
  }

  void find_special(const std::vector<ModelPiece>& pieces) {
    // A name first: some models give other pieces for pad or mask, but these
    // names mean the same in all.
    const auto find = [&](std::string_view name, int64_t otherwise) {
      const auto found =
          std::find_if(pieces.begin(), pieces.end(), [&](const auto& piece) {
            return piece.text == name && piece.type != ModelPiece::kNormal;
          });
      return found == pieces.end() ? otherwise : found - pieces.begin();
    };
    special.pad = find("<pad>", processor->pad_id());
    special.bos = find("<s>", processor->bos_id());
    special.eos = find("</s>", processor->eos_id());
    special.cls = find("[CLS]", -1);
    special.sep = find("[SEP]", -1);
    special.mask = find("[MASK]", -1);
    special.unknown = find("<unk>", processor->unk_id());
  }
};

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl)
    : impl_(std::move(impl)) {}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  return Tokenizer(
      std::make_shared<const Impl>(read_file(path), path.string()));
}

Tokenizer Tokenizer::train(const std::vector<std::string_view>& texts,
                           const TokenizerTraining& options) {
  return Tokenizer(std::make_shared<const Impl>(
      train_sentencepiece(texts, options), "the trained model"));
}

std::vector<int64_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int> ids;
  const std::string error = impl_->processor->encode(text, &ids);
  if (!error.empty()) {
    fail("tokenizer", "cannot encode a text of ", text.size(),
         " bytes: ", error);
  }
  return {ids.begin(), ids.end()};
}

std::vector<int64_t> Tokenizer::encode_for_classification(
    std::string_view text, int64_t max_length, bool* truncated) const {
  const SpecialTokens& special = impl_->special;
  const int64_t first = special.cls >= 0 ? special.cls : special.bos;
  const int64_t last = special.sep >= 0 ? special.sep : special.eos;
  if (first < 0 || last < 0) {
    fail_usage("tokenizer", "the model has neither ",
               first < 0 ? "[CLS] nor <s>" : "[SEP] nor </s>",
               ", which a text to classify must ", first < 0 ? "begin" : "end",
               " with");
  }
  if (max_length < 3) {
    fail_usage("tokenizer", "the maximal length is ", max_length,
               "; it must be at least 3: [CLS], one piece and [SEP]");
  }
  std::vector<int64_t> ids = encode(text);
  const auto room = static_cast<size_t>(max_length - 2);
  const bool cut = ids.size() > room;
  ids.resize(std::min(ids.size(), room));
  ids.insert(ids.begin(), first);
  ids.push_back(last);
  if (truncated != nullptr) {
    *truncated = cut;
  }
  return ids;
}

std::string Tokenizer::decode(const std::vector<int64_t>& ids) const {
  std::vector<int> narrow;
  narrow.reserve(ids.size());
  for (const int64_t id : ids) {
    if (id < 0 || id >= vocabulary()) {
      fail_usage("tokenizer", "there is no piece ", id, "; the vocabulary has ",
                 vocabulary());
    }
    narrow.push_back(static_cast<int>(id));
  }
  std::string text;
  const std::string error = impl_->processor->decode(narrow, &text);
  if (!error.empty()) {
    fail("tokenizer", "cannot decode ", ids.size(), " ids: ", error);
  }
  return text;
}

int64_t Tokenizer::vocabulary() const { return impl_->processor->size(); }

const SpecialTokens& Tokenizer::special() const { return impl_->special; }

void Tokenizer::save(const std::filesystem::path& path) const {
  write_file(path, impl_->model);
}

}  // namespace remat::data
