// The entries of a TOML file of flags.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace remat::cli {

enum class ValueKind { kBoolean, kInteger, kNumber, kString, kOther };

struct ConfigEntry {
  std::string key;  // as it stands there
  ValueKind kind = ValueKind::kOther;
  std::string text;  // the value as a command line would have it
  int line = 0;
};

// In the order of the file. Throws UsageError naming command, file, line and
// column where it is not TOML, and as read_file does.
std::vector<ConfigEntry> read_config_file(const std::string& command,
                                          const std::filesystem::path& path);

}  // namespace remat::cli
