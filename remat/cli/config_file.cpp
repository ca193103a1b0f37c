#include "remat/cli/config_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>

#include "remat/base/error.h"
#include "remat/base/file.h"

namespace remat::cli {
namespace {

ConfigEntry make_entry(std::string key, const toml::node& node) {
  ConfigEntry entry;
  entry.key = std::move(key);
  entry.line = static_cast<int>(node.source().begin.line);
  if (const auto* boolean = node.as_boolean()) {
    entry.kind = ValueKind::kBoolean;
    entry.text = boolean->get() ? "true" : "false";
  } else if (const auto* integer = node.as_integer()) {
    entry.kind = ValueKind::kInteger;
    entry.text = std::to_string(integer->get());
  } else if (const auto* number = node.as_floating_point()) {
    char text[64];
    const auto end = std::to_chars(text, text + sizeof text, number->get());
    entry.kind = ValueKind::kNumber;
    entry.text.assign(text, end.ptr);
    // 1.0 is no whole number, and must not look like one in an error.
    if (entry.text.find_first_of(".en") == std::string::npos) {
      entry.text += ".0";
    }
  } else if (const auto* string = node.as_string()) {
    entry.kind = ValueKind::kString;
    entry.text = string->get();
  }
  return entry;
}

}  // namespace

std::vector<ConfigEntry> read_config_file(const std::string& command,
                                          const std::filesystem::path& path) {
  const std::string text = read_file(path);
  toml::table table;
  try {
    table = toml::parse(text, path.string());
  } catch (const toml::parse_error& error) {
    fail_usage(command, path.string(), ":", error.source().begin.line,
               ": column ", error.source().begin.column, ": ",
               error.description());
  }
  std::vector<ConfigEntry> entries;
  for (auto&& [key, node] : table) {
    entries.push_back(make_entry(std::string(std::string_view(key)), node));
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const ConfigEntry& a, const ConfigEntry& b) {
                     return a.line < b.line;
                   });
  return entries;
}

}  // namespace remat::cli
