#include "remat/memory/process.h"

#include <fstream>
#include <sstream>
#include <string>

#include "remat/base/error.h"

namespace remat {
namespace {

// The field of a file of lines "Field:   123 kB".
int64_t field_bytes(const char* file, const std::string& field) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(field + ":", 0) == 0) {
      std::istringstream words(line.substr(field.size() + 1));
      int64_t kib = 0;
      if (words >> kib) {
        return kib * 1024;
      }
    }
  }
  fail("memory", file, " has no line ", field);
}

}  // namespace

int64_t resident_bytes() { return field_bytes("/proc/self/status", "VmRSS"); }

int64_t peak_resident_bytes() {
  return field_bytes("/proc/self/status", "VmHWM");
}

int64_t available_bytes() {
  return field_bytes("/proc/meminfo", "MemAvailable") +
         field_bytes("/proc/meminfo", "SwapFree");
}

}  // namespace remat
