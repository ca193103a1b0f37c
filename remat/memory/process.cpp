#include "remat/memory/process.h"

#include <fstream>
#include <sstream>
#include <string>

#include "remat/base/error.h"

namespace remat {
namespace {

int64_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) {
      std::istringstream words(line.substr(field.size() + 1));
      int64_t kib = 0;
      if (words >> kib) {
        return kib * 1024;
      }
    }
  }
  fail("memory", "/proc/self/status has no line ", field);
}

}  // namespace

int64_t resident_bytes() { return status_bytes("VmRSS"); }

int64_t peak_resident_bytes() { return status_bytes("VmHWM"); }

}  // namespace remat
