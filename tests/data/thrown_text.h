// The text of a UsageError, for tests that compare it as a whole.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "remat/base/error.h"

namespace remat::data {

template <class Function>
std::string thrown_text(const Function& function) {
  try {
    function();
  } catch (const UsageError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("not a UsageError: ") + error.what();
  }
  return "nothing was thrown";
}

// A new empty directory that goes when the test ends.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    // mkdtemp() puts letters of its own in place of the six.
    std::string name = ::testing::TempDir() + "/remat-XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace remat::data
