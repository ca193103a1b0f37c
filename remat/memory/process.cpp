#include "remat/memory/process.h"

#include <sys/utsname.h>

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

std::string processor_name() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  utsname system{};
  return uname(&system) == 0 ? system.machine : "unknown";
}

}  // namespace remat
