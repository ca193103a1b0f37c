#include "remat/memory/glibc_tuning.h"

#include <cstdlib>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace remat {

bool tune_glibc_allocator() {
#if defined(__GLIBC__)
  // Never a mapping of its own for a block: M_MMAP_THRESHOLD itself stops at
  // 32 MiB. -1 as trim threshold means never. One arena, since the others are
  // heaps of 64 MiB that cannot serve large tensors.
  return mallopt(M_MMAP_MAX, 0) == 1 && mallopt(M_TRIM_THRESHOLD, -1) == 1 &&
         mallopt(M_ARENA_MAX, 1) == 1;
#else
  return false;
#endif
}

}  // namespace remat
