// One JSON object on one line, with errors that say where and what.
//
// nlohmann::json accepts the same language, but its errors point behind the
// token they are about and name grammar symbols; here a person corrects a data
// file of a million lines by them.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace remat::data {

enum class JsonKind { kString, kNumber, kBoolean, kNull, kObject, kArray };

// "a string", "a number", ...: for messages.
std::string_view describe(JsonKind kind);

struct JsonMember {
  std::string name;
  JsonKind kind = JsonKind::kNull;
  std::string value;  // strings decoded; numbers and booleans as written
  size_t column = 0;  // of the value, in bytes from 1
};

class JsonLineError : public std::runtime_error {
 public:
  JsonLineError(size_t column, const std::string& message)
      : std::runtime_error(message), column_(column) {}
  size_t column() const { return column_; }

 private:
  size_t column_;
};

// The members of the object in order. The line must be valid UTF-8. Throws
// JsonLineError for anything that is not exactly one object (RFC 8259), a key
// that stands twice, and more than 100 levels of nesting.
std::vector<JsonMember> parse_json_line(std::string_view line);

}  // namespace remat::data
