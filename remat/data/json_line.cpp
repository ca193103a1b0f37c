#include "remat/data/json_line.h"

#include <algorithm>
#include <cstdint>

#include "remat/base/error.h"
#include "remat/data/utf8.h"

namespace remat::data {
namespace {

constexpr int kMaxDepth = 100;

class Parser {
 public:
  explicit Parser(std::string_view line) : line_(line) {}

  std::vector<JsonMember> parse() {
    skip_space();
    if (peek() != '{') {
      expected("'{'");
    }
    std::vector<JsonMember> members = object(1);
    skip_space();
    if (next_ < line_.size()) {
      expected("nothing after the object");
    }
    return members;
  }

 private:
  [[noreturn]] void fail_at(size_t offset, const std::string& message) const {
    throw JsonLineError(offset + 1, message);
  }

  [[noreturn]] void expected(std::string_view what) const {
    fail_at(next_, str("expected ", what, ", found ",
                       describe_character(line_, next_)));
  }

  // 0 at the end: as a character of JSON's grammar it does not occur.
  char peek() const { return next_ < line_.size() ? line_[next_] : '\0'; }

  bool accept(char wanted) {
    if (next_ < line_.size() && line_[next_] == wanted) {
      ++next_;
      return true;
    }
    return false;
  }

  void skip_space() {
    while (next_ < line_.size() &&
           (line_[next_] == ' ' || line_[next_] == '\t' ||
            line_[next_] == '\r' || line_[next_] == '\n')) {
      ++next_;
    }
  }

  std::vector<JsonMember> object(int depth) {
    check_depth(depth);
    ++next_;
    std::vector<JsonMember> members;
    skip_space();
    if (accept('}')) {
      return members;
    }
    while (true) {
      skip_space();
      const size_t start = next_;
      if (peek() != '"') {
        expected(members.empty() ? "'\"' or '}'" : "'\"' of a key after ','");
      }
      JsonMember member;
      member.name = string();
      for (const JsonMember& other : members) {
        if (other.name == member.name) {
          fail_at(start, str("the key \"", member.name, "\" stands twice"));
        }
      }
      skip_space();
      if (!accept(':')) {
        expected("':' after a key");
      }
      skip_space();
      member.column = next_ + 1;
      value(depth, member);
      members.push_back(std::move(member));
      skip_space();
      if (accept('}')) {
        return members;
      }
      if (!accept(',')) {
        expected("',' or '}' after a value");
      }
    }
  }

  void array(int depth) {
    check_depth(depth);
    ++next_;
    skip_space();
    if (accept(']')) {
      return;
    }
    while (true) {
      skip_space();
      JsonMember ignored;
      value(depth, ignored);
      skip_space();
      if (accept(']')) {
        return;
      }
      if (!accept(',')) {
        expected("',' or ']' after a value");
      }
    }
  }

  void check_depth(int depth) const {
    if (depth > kMaxDepth) {
      fail_at(next_, str("more than ", kMaxDepth, " levels of nesting"));
    }
  }

  void value(int depth, JsonMember& member) {
    const size_t start = next_;
    const char first = peek();
    if (first == '"') {
      member.kind = JsonKind::kString;
      member.value = string();
      return;
    }
    if (first == '{') {
      member.kind = JsonKind::kObject;
      object(depth + 1);
    } else if (first == '[') {
      member.kind = JsonKind::kArray;
      array(depth + 1);
    } else if (first == '-' || is_digit(first)) {
      member.kind = JsonKind::kNumber;
      number();
    } else if (literal("true") || literal("false")) {
      member.kind = JsonKind::kBoolean;
    } else if (literal("null")) {
      member.kind = JsonKind::kNull;
    } else {
      expected("a value");
    }
    member.value = line_.substr(start, next_ - start);
  }

  bool literal(std::string_view word) {
    if (line_.substr(next_, word.size()) != word) {
      return false;
    }
    next_ += word.size();
    return true;
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  void digits(std::string_view where) {
    if (!is_digit(peek())) {
      expected(str("a digit ", where));
    }
    while (is_digit(peek())) {
      ++next_;
    }
  }

  void number() {
    const bool negative = accept('-');
    if (accept('0')) {
      if (is_digit(peek())) {
        fail_at(next_ - 1, "a number must not begin with 0");
      }
    } else {
      digits(negative ? "after '-'" : "of a number");
    }
    if (accept('.')) {
      digits("after '.'");
    }
    if (accept('e') || accept('E')) {
      if (!accept('+')) {
        accept('-');
      }
      digits("of an exponent");
    }
  }

  std::string string() {
    const size_t start = next_++;
    std::string text;
    while (true) {
      const size_t plain = next_;
      while (next_ < line_.size() && line_[next_] != '"' &&
             line_[next_] != '\\' &&
             static_cast<uint8_t>(line_[next_]) >= 0x20) {
        ++next_;
      }
      text.append(line_.substr(plain, next_ - plain));
      if (next_ >= line_.size()) {
        fail_at(start, "the string that begins here has no closing '\"'");
      }
      if (accept('"')) {
        return text;
      }
      if (line_[next_] != '\\') {
        fail_at(next_,
                str("the control character ", describe_character(line_, next_),
                    " must be escaped in a string"));
      }
      escape(text);
    }
  }

  void escape(std::string& text) {
    const size_t start = next_++;
    const char kind = peek();
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
    const size_t simple = kNames.find(kind);
    if (next_ < line_.size() && simple != std::string_view::npos) {
      text += kValues[simple];
      ++next_;
      return;
    }
    if (!accept('u')) {
      fail_at(start, str("unknown escape: '\\' and then ",
                         describe_character(line_, next_)));
    }
    char32_t code = four_digits();
    if (code >= 0xD800 && code <= 0xDBFF) {
      const bool pair = accept('\\') && accept('u');
      const char32_t low = pair ? four_digits() : 0;
      if (low < 0xDC00 || low > 0xDFFF) {
        fail_at(start, "half of a surrogate pair in a \\u escape");
      }
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
      fail_at(start, "half of a surrogate pair in a \\u escape");
    }
    append_utf8(text, code);
  }

  char32_t four_digits() {
    char32_t code = 0;
    for (int i = 0; i < 4; ++i, ++next_) {
      const char c = peek();
      int digit = -1;
      if (is_digit(c)) {
        digit = c - '0';
      } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
        digit = (c | 0x20) - 'a' + 10;
      } else {
        expected("four hexadecimal digits after \\u");
      }
      code = code * 16 + static_cast<char32_t>(digit);
    }
    return code;
  }

  std::string_view line_;
  size_t next_ = 0;
};

}  // namespace

std::string_view describe(JsonKind kind) {
  switch (kind) {
    case JsonKind::kString:
      return "a string";
    case JsonKind::kNumber:
      return "a number";
    case JsonKind::kBoolean:
      return "a boolean";
    case JsonKind::kNull:
      return "null";
    case JsonKind::kObject:
      return "an object";
    case JsonKind::kArray:
      return "an array";
  }
  return "";
}

std::vector<JsonMember> parse_json_line(std::string_view line) {
  return Parser(line).parse();
}

}  // namespace remat::data
