#include "remat/data/sentencepiece_model.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace remat::data {
namespace {

// Reads fields until the end; ok() is false from the first broken one on.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  uint64_t field() const { return tag_ >> 3; }
  bool is_bytes() const { return (tag_ & 7) == 2; }
  bool is_varint() const { return (tag_ & 7) == 0; }
  std::string_view bytes() const { return value_; }
  uint64_t varint() const { return number_; }
  size_t value_offset() const { return value_offset_; }

  bool next() {
    if (!ok_ || next_ >= bytes_.size()) {
      return false;
    }
    tag_ = read_varint();
    value_offset_ = next_;
    switch (tag_ & 7) {
      case 0:
        number_ = read_varint();
        break;
      case 1:
        value_ = read_bytes(8);
        break;
      case 2: {
        const uint64_t length = read_varint();
        value_ = read_bytes(length);
        break;
      }
      case 5:
        value_ = read_bytes(4);
        break;
      default:
        ok_ = false;
    }
    return ok_;
  }

 private:
  uint64_t read_varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (next_ >= bytes_.size()) {
        break;
      }
      const auto byte = static_cast<uint8_t>(bytes_[next_++]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) {
        return value;
      }
    }
    ok_ = false;
    return 0;
  }

  std::string_view read_bytes(uint64_t length) {
    if (length > bytes_.size() - next_) {
      ok_ = false;
      return {};
    }
    const auto value = bytes_.substr(next_, length);
    next_ += length;
    return value;
  }

  std::string_view bytes_;
  std::string_view value_;
  uint64_t number_ = 0;
  uint64_t tag_ = 0;
  size_t next_ = 0;
  size_t value_offset_ = 0;
  bool ok_ = true;
};

bool read_piece(std::string_view model, std::string_view message,
                ModelPiece& piece) {
  WireReader reader(message);
  while (reader.next()) {
    if (reader.field() == 1 && reader.is_bytes()) {
      piece.text = reader.bytes();
    } else if (reader.field() == 3 && reader.is_varint()) {
      piece.type = static_cast<int>(reader.varint());
      piece.type_offset = static_cast<size_t>(message.data() - model.data()) +
                          reader.value_offset();
    }
  }
  return reader.ok() && !piece.text.empty();
}

}  // namespace

std::vector<ModelPiece> model_pieces(std::string_view model) {
  std::vector<ModelPiece> pieces;
  WireReader reader(model);
  while (reader.next()) {
    if (reader.field() == 1 && reader.is_bytes()) {
      ModelPiece piece;
      if (!read_piece(model, reader.bytes(), piece)) {
        return {};
      }
      pieces.push_back(piece);
    }
  }
  return reader.ok() ? pieces : std::vector<ModelPiece>();
}

std::string with_control_pieces(std::string model) {
  constexpr std::array<std::string_view, 6> kNames = {
      "[CLS]", "[SEP]", "[MASK]", "<pad>", "<s>", "</s>"};
  std::vector<size_t> offsets;
  for (const ModelPiece& piece : model_pieces(model)) {
    if (piece.type == ModelPiece::kUserDefined &&
        std::find(kNames.begin(), kNames.end(), piece.text) != kNames.end()) {
      offsets.push_back(piece.type_offset);
    }
  }
  for (const size_t offset : offsets) {
    model[offset] = ModelPiece::kControl;
  }
  return model;
}

}  // namespace remat::data
