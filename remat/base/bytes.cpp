#include "remat/base/bytes.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

#include "remat/base/error.h"

namespace remat {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 9> kUnits{{
    {"KiB", 1024.0},
    {"MiB", 1048576.0},
    {"GiB", 1073741824.0},
    {"TiB", 1099511627776.0},
    {"kB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
    {"B", 1.0},
}};

}  // namespace

std::string format_bytes(int64_t bytes) {
  const char* sign = bytes < 0 ? "-" : "";
  double value = std::abs(static_cast<double>(bytes));
  if (value < 1024.0) {
    return str(bytes, " B");
  }
  const char* unit = "KiB";
  value /= 1024.0;
  for (const char* next : {"MiB", "GiB", "TiB", "PiB", "EiB"}) {
    if (value < 999.5) {
      break;
    }
    value /= 1024.0;
    unit = next;
  }
  char text[48];
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::snprintf(text, sizeof text, "%s%.*f %s", sign, decimals, value, unit);
  return text;
}

std::string format_thousands(int64_t value) {
  std::string digits = std::to_string(value);
  const int first = value < 0 ? 1 : 0;
  for (int at = static_cast<int>(digits.size()) - 3; at > first; at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

int64_t parse_bytes(std::string_view text) {
  const auto bad = [&](const char* why) {
    fail_usage("size", "'", text, "' ", why,
               "; write for example 900MiB, 4GiB, 4GB or plain bytes");
  };
  double value = 0;
  const auto [end, error] = std::from_chars(
      text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(value)) {
    bad("is no size");
  }
  std::string_view unit(end, text.data() + text.size() - end);
  while (!unit.empty() && unit.front() == ' ') {
    unit.remove_prefix(1);
  }
  double scale = unit.empty() ? 1.0 : 0.0;
  for (const auto& [name, factor] : kUnits) {
    if (unit == name) {
      scale = factor;
    }
  }
  if (scale == 0.0) {
    bad("has an unknown unit");
  }
  if (value < 0) {
    bad("is negative");
  }
  if (value * scale >= 9223372036854775808.0) {
    bad("is more than 8 EiB");
  }
  return static_cast<int64_t>(value * scale);
}

}  // namespace remat
