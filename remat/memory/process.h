// What the operating system says of this process.
#pragma once

#include <cstdint>
#include <string>

namespace remat {

// Resident memory now and at its peak (VmRSS and VmHWM of /proc/self/status),
// in bytes. Throws Error where the system does not tell.
int64_t resident_bytes();
int64_t peak_resident_bytes();

// Memory, swap space included, that the system could give to processes without
// killing one (MemAvailable and SwapFree of /proc/meminfo), in bytes. Limits of
// a control group are not seen.
int64_t available_bytes();

// "AMD EPYC 7B13" and the like (/proc/cpuinfo), or the architecture's name
// where the system does not tell.
std::string processor_name();

}  // namespace remat
