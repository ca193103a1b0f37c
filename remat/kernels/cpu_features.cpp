#include "remat/kernels/cpu_features.h"

#include <atomic>

namespace remat::kernels {
namespace {

bool machine_has_avx2() {
#ifdef REMAT_HAVE_AVX2
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

std::atomic<bool> avx2_allowed{true};

}  // namespace

bool uses_avx2() {
  static const bool present = machine_has_avx2();
  return present && avx2_allowed.load(std::memory_order_relaxed);
}

void allow_avx2(bool allowed) {
  avx2_allowed.store(allowed, std::memory_order_relaxed);
}

}  // namespace remat::kernels
