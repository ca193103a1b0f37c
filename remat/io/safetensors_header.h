// The header of a safetensors file: its text, checked and taken apart.
//
// For the sources of remat/io; users include safetensors.h.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace remat::io {

// As in the reference implementation: a longer header is an attack.
constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

// "F32" for float, ...; empty for a type that the format or remat lacks.
std::string_view safetensors_dtype_name(at::ScalarType dtype);
std::optional<at::ScalarType> safetensors_dtype(std::string_view name);

struct SafetensorsEntry {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t begin;  // bytes from the end of the header
  uint64_t end;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of the text
  std::map<std::string, std::string> metadata;
};

// source: the file's name in errors. data_bytes: what follows the header in
// the file; the tensors must cover it without a gap or an overlap. Throws
// UsageError naming source, tensor and value.
SafetensorsHeader parse_safetensors_header(const std::string& source,
                                           std::string_view text,
                                           uint64_t data_bytes);

// The JSON text, padded with spaces so that the data after it stands at a
// multiple of 8 bytes.
std::string format_safetensors_header(const SafetensorsHeader& header);

}  // namespace remat::io
