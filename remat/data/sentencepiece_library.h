// SentencePiece, kept apart from the rest of the process.
//
// Debian 12's libsentencepiece exports the protocol buffers that it bundles.
// They are of another version than those that libtorch uses under the same
// names, and a program that links both crashes before main. So nothing here
// links it: a module of our own does, and is loaded with a scope of its own.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace remat::data {

// A loaded model. Thread-safe. Errors are returned: an empty string is none.
class SentencePiece {
 public:
  virtual ~SentencePiece() = default;
  virtual std::string encode(std::string_view text,
                             std::vector<int>* ids) const = 0;
  virtual std::string decode(const std::vector<int>& ids,
                             std::string* text) const = 0;
  virtual int size() const = 0;  // of the vocabulary

  // -1 where the model has none.
  virtual int pad_id() const = 0;
  virtual int bos_id() const = 0;
  virtual int eos_id() const = 0;
  virtual int unk_id() const = 0;
};

// From the bytes of a .model file; null and `error` if it is none. Throws
// Error if the module cannot be loaded.
std::unique_ptr<SentencePiece> load_sentencepiece(const std::string& model,
                                                  std::string* error);

// SentencePiece's trainer on the lines, with its own arguments; the bytes of
// the model. Returns SentencePiece's error. Throws as load_sentencepiece.
std::string run_sentencepiece_trainer(
    const std::unordered_map<std::string, std::string>& arguments,
    const std::vector<std::string>& lines, std::string* model);

// What the module exports, under these names.
extern "C" {
using RematLoadSentencePiece = SentencePiece*(const std::string& model,
                                              std::string* error);
using RematTrainSentencePiece =
    void(const std::unordered_map<std::string, std::string>& arguments,
         const std::vector<std::string>& lines, std::string* model,
         std::string* error);
}

}  // namespace remat::data
