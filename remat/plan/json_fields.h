// Objects of the plan files: what JsonObject reads, with required fields,
// arrays, and complaints about fields that nobody reads.
//
// For sources only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "remat/base/json.h"

namespace remat::plan {

class Fields {
 public:
  // `known` are the fields an object of this kind may have; another one throws
  // UsageError with the nearest known name.
  Fields(std::string source, const nlohmann::json& value,
         const std::vector<std::string>& known);

  // Without `otherwise` the field is required.
  int64_t integer(std::string_view name) const;
  int64_t integer(std::string_view name, int64_t otherwise) const;
  double number(std::string_view name) const;
  double number(std::string_view name, double otherwise) const;
  bool boolean(std::string_view name, bool otherwise) const;
  std::string string(std::string_view name) const;
  std::string string(std::string_view name, std::string_view otherwise) const;

  // The elements of a field that must be an array; none where it is absent.
  std::vector<const nlohmann::json*> array(std::string_view name) const;

  [[noreturn]] void refuse(std::string_view name,
                           std::string_view reason) const {
    object_.refuse(name, reason);
  }
  bool has(std::string_view name) const { return object_.has(name); }

 private:
  void require(std::string_view name) const;

  const nlohmann::json* value_;
  JsonObject object_;
};

// The opening fields of a plan file: "format" must be `format` and "version"
// one that this library reads, 1. Throws UsageError that says which it is.
void check_format(const Fields& fields, std::string_view format);

}  // namespace remat::plan
