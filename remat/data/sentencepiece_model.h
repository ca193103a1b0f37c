// The few fields of a SentencePiece .model file that we look at ourselves
// (sentencepiece_model.proto; the wire format is that of protocol buffers).
// Debian ships no header of the generated classes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace remat::data {

struct ModelPiece {
  static constexpr int kNormal = 1, kUnknown = 2, kControl = 3,
                       kUserDefined = 4;
  std::string_view text;  // within the model
  int type = kNormal;
  size_t type_offset = 0;  // of its byte in the model; 0: not written
};

// The pieces in the order of their ids; empty if the bytes are not a model.
std::vector<ModelPiece> model_pieces(std::string_view model);

// The model with its user-defined [CLS], [SEP], [MASK], <pad>, <s> and </s> as
// control pieces: then a text in which "[CLS]" is written out does not get the
// id of the special token.
std::string with_control_pieces(std::string model);

}  // namespace remat::data
