// Checks of UTF-8 text, for the sources of this room.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace remat::data {

// The length in bytes of the character at `offset` (1 to 4), or 0 if no valid
// one begins there: overlong forms, surrogates and values beyond U+10FFFF are
// not valid (RFC 3629).
size_t utf8_length(std::string_view text, size_t offset);

// The offset of the first byte that belongs to no valid character, or npos.
size_t find_invalid_utf8(std::string_view text);

// The character at `offset` for a message: 'x', a byte as 0x1F if it cannot be
// printed, or "the end of the line".
std::string describe_character(std::string_view text, size_t offset);

// Appends the UTF-8 form of a code point.
void append_utf8(std::string& text, char32_t code);

}  // namespace remat::data
