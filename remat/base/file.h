// Whole files, read and written safely.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace remat {

// The bytes of a file. Throws UsageError if it is missing, a directory or not
// readable (naming the path and why), Error if reading fails half-way.
std::string read_file(const std::filesystem::path& path);

// A file that appears under its name only when it is complete: written beside
// it under a temporary name, synced and renamed by commit(). Without commit()
// nothing is left behind.
class AtomicFile {
 public:
  // Throws Error naming the path if the file cannot be created.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Both throw Error naming the path and the cause (no space left, ...).
  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

// AtomicFile with all of its content at once.
void write_file(const std::filesystem::path& path, std::string_view text);

// Creates the directory and its parents. Throws Error naming it and the cause.
void make_directories(const std::filesystem::path& path);

}  // namespace remat
