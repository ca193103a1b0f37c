// The output directory of a training run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace remat::train {

// Throws UsageError if the directory holds a model and overwrite is false (what
// a run left that ended before its first model may be replaced), or if it (or
// the nearest parent there is) cannot be written. Writes nothing.
void check_run_folder(const std::filesystem::path& directory, bool overwrite);

// A file that grows by whole lines: metrics.jsonl.
class LineFile {
 public:
  // Empties the file. Throws Error naming the path.
  explicit LineFile(std::filesystem::path path);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // Adds the text and a line feed. Throws Error naming path and cause; what
  // was written of the line is taken back.
  void append(std::string_view line);

  // Goes on under another name, replacing the file there. Throws Error naming
  // path and cause.
  void rename(std::filesystem::path path);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

}  // namespace remat::train
