// The safetensors format: an 8-byte little-endian header length, a JSON header
// (name -> dtype, shape, data_offsets; "__metadata__": strings), then the raw
// little-endian data. https://github.com/huggingface/safetensors
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace remat::io {

// A file opened for reading; each tensor is read when it is asked for. Nothing
// the file says is trusted: header length, offsets, shapes, overlaps and
// overflow are checked on opening, and every error (UsageError) names the file,
// the tensor and the value. Thread-safe once opened.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  // Names in the order of the file's header.
  const std::vector<std::string>& names() const;
  bool has(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const;

  // A fresh tensor with a copy of the data. Throws UsageError for an absent
  // name (naming a similar one where there is one) and for BOOL bytes other
  // than 0 and 1, Error if reading fails.
  at::Tensor tensor(const std::string& name) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes the tensors (any strides, any device), whole or not at all. The header
// lists them in the order given; the data lies by falling element size, so that
// each tensor is aligned. Throws Error naming path and cause, UsageError naming
// the tensor for a repeated name, an undefined or sparse tensor, and a dtype
// that the format lacks.
void write_safetensors(
    const std::filesystem::path& path,
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    const std::map<std::string, std::string>& metadata = {});

}  // namespace remat::io
