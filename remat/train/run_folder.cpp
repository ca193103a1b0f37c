#include "remat/train/run_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "remat/base/error.h"

namespace remat::train {
namespace {

// Not metrics.jsonl and run.toml: alone they are of a run that failed before it
// had a model, and would only stand in the way of the next try.
constexpr const char* kFilesOfModel[] = {"model.safetensors", "config.json"};

}  // namespace

void check_run_folder(const std::filesystem::path& directory, bool overwrite) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::exists(directory, ignored) && !fs::is_directory(directory, ignored)) {
    fail_usage("train", "--output-dir ", directory.string(),
               " is a file; it must be a directory or a new name.");
  }
  for (const char* name : kFilesOfModel) {
    if (!overwrite && fs::exists(directory / name, ignored)) {
      fail_usage("train", "--output-dir ", directory.string(),
                 " holds another run (", name,
                 " is there). Choose another directory, or replace that run "
                 "with --overwrite-output-dir.");
    }
  }
  fs::path nearest = fs::absolute(directory);
  while (!fs::exists(nearest, ignored) && nearest.has_relative_path()) {
    nearest = nearest.parent_path();
  }
  if (::access(nearest.c_str(), W_OK | X_OK) != 0) {
    fail_usage("train", "--output-dir ", directory.string(),
               " cannot be written: ", nearest.string(), ": ",
               std::strerror(errno));
  }
}

LineFile::LineFile(std::filesystem::path path) : path_(std::move(path)) {
  descriptor_ =
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    fail("train", "cannot write ", path_.string(), ": ", std::strerror(errno));
  }
}

LineFile::~LineFile() { ::close(descriptor_); }

void LineFile::append(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count =
        ::write(descriptor_, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      const int error = errno;
      if (::ftruncate(descriptor_, size_) == 0) {
        ::lseek(descriptor_, size_, SEEK_SET);
      }
      fail("train", "cannot write ", path_.string(), ": ",
           std::strerror(error));
    }
    written += static_cast<size_t>(count);
  }
  size_ += static_cast<int64_t>(text.size());
}

void LineFile::rename(std::filesystem::path path) {
  if (path == path_) {
    return;
  }
  std::error_code error;
  std::filesystem::rename(path_, path, error);
  if (error) {
    fail("train", "cannot write ", path.string(), ": ", error.message());
  }
  path_ = std::move(path);
}

}  // namespace remat::train
