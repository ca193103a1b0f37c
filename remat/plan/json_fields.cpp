#include "remat/plan/json_fields.h"

#include <algorithm>

#include "remat/base/error.h"
#include "remat/base/suggest.h"

namespace remat::plan {

using nlohmann::json;

Fields::Fields(std::string source, const json& value,
               const std::vector<std::string>& known)
    : value_(&value), object_("plan", source, value) {
  for (const auto& [name, field] : value.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      fail_usage("plan", source, ": unknown field \"", name, "\"",
                 did_you_mean(name, known));
    }
  }
}

void Fields::require(std::string_view name) const {
  if (!object_.has(name)) {
    refuse(name, "it is required");
  }
}

int64_t Fields::integer(std::string_view name) const {
  require(name);
  return object_.integer(name, 0);
}

int64_t Fields::integer(std::string_view name, int64_t otherwise) const {
  return object_.integer(name, otherwise);
}

double Fields::number(std::string_view name) const {
  require(name);
  return object_.number(name, 0);
}

double Fields::number(std::string_view name, double otherwise) const {
  return object_.number(name, otherwise);
}

bool Fields::boolean(std::string_view name, bool otherwise) const {
  return object_.boolean(name, otherwise);
}

std::string Fields::string(std::string_view name) const {
  require(name);
  return object_.string(name, "");
}

std::string Fields::string(std::string_view name,
                           std::string_view otherwise) const {
  return object_.string(name, otherwise);
}

std::vector<const json*> Fields::array(std::string_view name) const {
  std::vector<const json*> elements;
  if (!object_.has(name)) {
    return elements;
  }
  const json& field = *value_->find(std::string(name));
  if (!field.is_array()) {
    refuse(name, "it must be an array");
  }
  for (const json& element : field) {
    elements.push_back(&element);
  }
  return elements;
}

void check_format(const Fields& fields, std::string_view format) {
  constexpr int64_t kVersion = 1;
  if (fields.string("format") != format) {
    fields.refuse("format", str("it must be \"", format, "\""));
  }
  const int64_t version = fields.integer("version");
  if (version > kVersion) {
    fields.refuse("version", str("this remat reads versions up to ", kVersion,
                                 ": a newer one wrote the file"));
  }
  if (version < 1) {
    fields.refuse("version", "versions count from 1");
  }
}

}  // namespace remat::plan
