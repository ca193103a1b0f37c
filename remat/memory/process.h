// What the operating system says of this process.
#pragma once

#include <cstdint>

namespace remat {

// Resident memory now and at its peak (VmRSS and VmHWM of /proc/self/status),
// in bytes. Throws Error where the system does not tell.
int64_t resident_bytes();
int64_t peak_resident_bytes();

}  // namespace remat
