#include "remat/data/utf8.h"

#include <cstdint>

namespace remat::data {

size_t utf8_length(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0};
  };
  const auto follows = [&](size_t i, uint8_t least = 0x80,
                           uint8_t most = 0xBF) {
    return byte(i) >= least && byte(i) <= most;
  };
  if (offset >= text.size()) {
    return 0;
  }
  const uint8_t first = byte(offset);
  if (first < 0x80) {
    return 1;
  }
  if (first >= 0xC2 && first <= 0xDF) {
    return follows(offset + 1) ? 2 : 0;
  }
  if (first >= 0xE0 && first <= 0xEF) {
    // E0 would be overlong below A0; ED from A0 on is a surrogate.
    const bool second = follows(offset + 1, first == 0xE0 ? 0xA0 : 0x80,
                                first == 0xED ? 0x9F : 0xBF);
    return second && follows(offset + 2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool second = follows(offset + 1, first == 0xF0 ? 0x90 : 0x80,
                                first == 0xF4 ? 0x8F : 0xBF);
    return second && follows(offset + 2) && follows(offset + 3) ? 4 : 0;
  }
  return 0;
}

size_t find_invalid_utf8(std::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    const size_t length = utf8_length(text, offset);
    if (length == 0) {
      return offset;
    }
    offset += length;
  }
  return std::string_view::npos;
}

std::string describe_character(std::string_view text, size_t offset) {
  if (offset >= text.size() || text[offset] == '\n') {
    return "the end of the line";
  }
  const auto byte = static_cast<uint8_t>(text[offset]);
  const size_t length = utf8_length(text, offset);
  if (length == 0 || byte < 0x20 || byte == 0x7F) {
    constexpr char kDigits[] = "0123456789ABCDEF";
    return std::string("0x") + kDigits[byte >> 4] + kDigits[byte & 15];
  }
  return "'" + std::string(text.substr(offset, length)) + "'";
}

void append_utf8(std::string& text, char32_t code) {
  const auto continuation = [&](int shift) {
    text += static_cast<char>(0x80 | (code >> shift & 0x3F));
  };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    continuation(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    continuation(6);
    continuation(0);
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

}  // namespace remat::data
