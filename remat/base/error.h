// The exceptions of remat, and how their texts are put together.
//
// A text names the operation in brackets, then the value and the remedy:
//   [data] reviews.jsonl:118: column 64: expected ',' or '}' after a value
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace remat {

// Anything that goes wrong at run time: a broken file, a full disk. The
// program exits with 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What the user asked for cannot be: a wrong flag, configuration or file name.
// The program exits with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// No plan stays within the memory that was named. The program exits with 3.
class NoPlanError : public Error {
 public:
  // least_bytes: the least memory that has one; 0: none has.
  explicit NoPlanError(const std::string& text, int64_t least_bytes = 0)
      : Error(text), least_bytes_(least_bytes) {}

  int64_t least_bytes() const { return least_bytes_; }

 private:
  int64_t least_bytes_;
};

// The memory that was named is used up. The program exits with 4.
class BudgetError : public Error {
 public:
  // missing_bytes: how much more would have done at that point.
  explicit BudgetError(const std::string& text, int64_t missing_bytes = 0)
      : Error(text), missing_bytes_(missing_bytes) {}

  int64_t missing_bytes() const { return missing_bytes_; }

 private:
  int64_t missing_bytes_;
};

// Concatenates the parts as operator<< prints them.
template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Throws Error("[operation] parts...").
template <class... Parts>
[[noreturn]] void fail(std::string_view operation, const Parts&... parts) {
  throw Error(remat::str("[", operation, "] ", parts...));
}

// Throws UsageError("[operation] parts...").
template <class... Parts>
[[noreturn]] void fail_usage(std::string_view operation,
                             const Parts&... parts) {
  throw UsageError(remat::str("[", operation, "] ", parts...));
}

}  // namespace remat
