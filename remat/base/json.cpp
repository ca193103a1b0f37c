#include "remat/base/json.h"

#include <algorithm>
#include <set>
#include <vector>

#include "remat/base/error.h"

namespace remat {
namespace {

using nlohmann::json;

std::string describe_position(std::string_view text, size_t byte) {
  // nlohmann counts the bytes it has read, so byte is 1-based.
  const size_t offset = std::min(byte > 0 ? byte - 1 : 0, text.size());
  const auto before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t start = before.rfind('\n');
  const size_t column =
      start == std::string_view::npos ? offset + 1 : offset - start;
  const bool single_line = text.find('\n') == std::string_view::npos;
  return single_line ? str("column ", column)
                     : str("line ", line, ", column ", column);
}

// Keeps what nlohmann found, drops its own prefix and position.
std::string describe_error(const json::parse_error& error) {
  const std::string text = error.what();
  const size_t cut = text.find(": ");
  std::string detail = cut == std::string::npos ? text : text.substr(cut + 2);
  constexpr std::string_view kSyntax = "syntax error while parsing ";
  if (detail.rfind(kSyntax, 0) == 0) {
    detail = "broken JSON " + detail.substr(kSyntax.size());
  }
  return detail;
}

}  // namespace

json parse_json(std::string_view operation, std::string_view source,
                std::string_view text) {
  std::vector<std::set<std::string>> keys;
  std::string repeated;
  const auto callback = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key &&
               !keys.back().insert(parsed.get<std::string>()).second) {
      repeated = parsed.get<std::string>();
    }
    return true;
  };
  json value;
  try {
    value = json::parse(text.begin(), text.end(), callback);
  } catch (const json::parse_error& error) {
    fail_usage(operation, source, ": ", describe_position(text, error.byte),
               ": ", describe_error(error));
  } catch (const json::exception& error) {
    // A number beyond double: 1e999.
    fail_usage(operation, source, ": ", error.what());
  }
  if (!repeated.empty()) {
    fail_usage(operation, source, ": the key \"", repeated,
               "\" stands twice in one object");
  }
  return value;
}

JsonObject::JsonObject(std::string_view operation, std::string_view source,
                       const json& value)
    : operation_(operation), source_(source), value_(&value) {
  if (!value.is_object()) {
    fail_usage(operation, source, ": expected a JSON object, found ",
               value.type_name());
  }
}

const json* JsonObject::find(std::string_view name) const {
  const auto found = value_->find(std::string(name));
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonObject::has(std::string_view name) const {
  return find(name) != nullptr;
}

void JsonObject::refuse(std::string_view name, std::string_view reason) const {
  const json* value = find(name);
  fail_usage(operation_, source_, ": ", name, " is ",
             value == nullptr
                 ? "absent"
                 : value->dump(-1, ' ', false, json::error_handler_t::replace),
             "; ", reason);
}

int64_t JsonObject::integer(std::string_view name, int64_t otherwise) const {
  const json* value = find(name);
  if (value == nullptr) {
    return otherwise;
  }
  if (!value->is_number_integer() ||
      (value->is_number_unsigned() &&
       value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))) {
    refuse(name, "it must be a whole number");
  }
  return value->get<int64_t>();
}

double JsonObject::number(std::string_view name, double otherwise) const {
  const json* value = find(name);
  if (value == nullptr) {
    return otherwise;
  }
  if (!value->is_number()) {
    refuse(name, "it must be a number");
  }
  return value->get<double>();
}

bool JsonObject::boolean(std::string_view name, bool otherwise) const {
  const json* value = find(name);
  if (value == nullptr) {
    return otherwise;
  }
  if (!value->is_boolean()) {
    refuse(name, "it must be true or false");
  }
  return value->get<bool>();
}

std::string JsonObject::string(std::string_view name,
                               std::string_view otherwise) const {
  const json* value = find(name);
  if (value == nullptr) {
    return std::string(otherwise);
  }
  if (!value->is_string()) {
    refuse(name, "it must be a string");
  }
  return value->get<std::string>();
}

}  // namespace remat
