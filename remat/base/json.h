// Reading JSON objects field by field, with errors that name file and field.
//
// For sources only: public headers do not include this.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace remat {

// Parses one JSON value. A syntax error throws UsageError
//   [operation] SOURCE: column C: what was expected
// or, where the text has several lines, "line L, column C". Columns count
// bytes from 1. Repeated keys, NaN and infinities are errors too.
nlohmann::json parse_json(std::string_view operation, std::string_view source,
                          std::string_view text);

// The fields of one object. A field of another type, or a number that does not
// fit, throws UsageError naming source, field, value and the type wanted.
// null counts as absent.
class JsonObject {
 public:
  // The value must outlive this object; throws if it is not an object.
  JsonObject(std::string_view operation, std::string_view source,
             const nlohmann::json& value);

  bool has(std::string_view name) const;
  int64_t integer(std::string_view name, int64_t otherwise) const;
  double number(std::string_view name, double otherwise) const;
  bool boolean(std::string_view name, bool otherwise) const;
  std::string string(std::string_view name, std::string_view otherwise) const;

  // Throws UsageError "[operation] source: name is VALUE; reason".
  [[noreturn]] void refuse(std::string_view name,
                           std::string_view reason) const;

 private:
  const nlohmann::json* find(std::string_view name) const;

  std::string operation_;
  std::string source_;
  const nlohmann::json* value_;
};

}  // namespace remat
