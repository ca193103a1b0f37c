// What validate() of chains and graphs looks at, field by field.
//
// For sources only.
#pragma once

#include <cmath>
#include <string>

#include "remat/base/error.h"

namespace remat::plan {

// Sums of these stay far from the ends of int64_t and double.
inline constexpr int64_t kMaxBytes = int64_t{1} << 60;
inline constexpr double kMaxSeconds = 1e12;

class Checker {
 public:
  // `whole`: "chain", of which the sizes must not add up to too much.
  explicit Checker(std::string whole) : whole_(whole), place_(whole) {}

  // Later complaints name this place: "stage 3 (attention)".
  void enter(std::string place) { place_ = std::move(place); }

  void bytes(const char* field, int64_t value) {
    if (value < 0) {
      refuse(field, value, "it must not be negative");
    }
    if (value > kMaxBytes - total_) {
      refuse(field, value, "the sizes of the ", whole_,
             " add up to more than 2^60 bytes");
    }
    total_ += value;
  }

  void seconds(const char* field, double value) {
    if (!std::isfinite(value) || value < 0 || value > kMaxSeconds) {
      refuse(field, value, "it must be a time from 0 to 1e12 seconds");
    }
  }

  void rate(const char* field, double value) {
    if (!std::isfinite(value) || value < 0 || (value > 0 && value < 1e-3)) {
      refuse(field, value,
             "it must be bytes a second, or 0 for no cost by the byte");
    }
  }

  template <class Value, class... Reason>
  [[noreturn]] void refuse(const char* field, const Value& value,
                           const Reason&... reason) const {
    fail_usage("plan", place_, ": ", field, " is ", value, "; ", reason...);
  }

 private:
  std::string whole_;
  std::string place_;
  int64_t total_ = 0;
};

// "stage 3 (attention)".
inline std::string place_of(const char* what, size_t index,
                            const std::string& name) {
  std::string place = str(what, " ", index);
  if (!name.empty()) {
    place += str(" (", name, ")");
  }
  return place;
}

}  // namespace remat::plan
