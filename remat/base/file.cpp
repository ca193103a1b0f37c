#include "remat/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "remat/base/error.h"

namespace remat {
namespace {

// No single call moves more; Linux itself stops at about 2 GiB.
constexpr size_t kChunk = size_t{1} << 30;

// Renames last only when the directory that holds the name is synced too.
void sync_directory(const std::filesystem::path& directory) {
  const auto name = directory.empty() ? std::filesystem::path(".") : directory;
  const int descriptor = ::open(name.c_str(), O_RDONLY | O_DIRECTORY);
  if (descriptor >= 0) {
    ::fsync(descriptor);
    ::close(descriptor);
  }
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    fail_usage("file", "cannot read ", path.string(), ": ",
               std::strerror(errno));
  }
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode)) {
    ::close(descriptor);
    fail_usage("file", "cannot read ", path.string(), ": it is a directory");
  }
  std::string content;
  // The size is a hint only: pipes and /proc say 0.
  content.resize(static_cast<size_t>(std::max<off_t>(status.st_size, 4096)));
  size_t filled = 0;
  while (true) {
    if (filled == content.size()) {
      content.resize(content.size() * 2);
    }
    const ssize_t got = ::read(descriptor, content.data() + filled,
                               std::min(content.size() - filled, kChunk));
    if (got == 0) {
      break;
    }
    if (got < 0) {
      if (errno == EINTR) {
        continue;
      }
      const int error = errno;
      ::close(descriptor);
      fail("file", "cannot read ", path.string(), ": ", std::strerror(error));
    }
    filled += static_cast<size_t>(got);
  }
  ::close(descriptor);
  content.resize(filled);
  return content;
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  temporary_ = path_;
  temporary_ += str(".tmp-", ::getpid());
  descriptor_ = ::open(temporary_.c_str(),
                       O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    fail("file", "cannot write ", path_.string(), ": ", std::strerror(errno));
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
    ::unlink(temporary_.c_str());
  }
}

void AtomicFile::write(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, std::min(bytes, kChunk));
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      fail("file", "cannot write ", path_.string(), ": ", std::strerror(errno));
    }
    next += written;
    bytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  const bool synced = ::fsync(descriptor_) == 0;
  const int sync_error = errno;
  const bool closed = ::close(std::exchange(descriptor_, -1)) == 0;
  const int close_error = errno;
  if (!synced || !closed || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = !synced ? sync_error : !closed ? close_error : errno;
    ::unlink(temporary_.c_str());
    fail("file", "cannot write ", path_.string(), ": ", std::strerror(error));
  }
  sync_directory(path_.parent_path());
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void make_directories(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    fail("file", "cannot create the directory ", path.string(), ": ",
         error.message());
  }
}

}  // namespace remat
