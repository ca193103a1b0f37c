// The inner loop of dropout, on plain pointers.
#pragma once

#include <cstdint>

namespace remat::kernels {

// One dropout of a whole tensor.
struct DropoutMask {
  uint64_t seed;
  uint64_t threshold;  // a word is kept if it is at least this; up to 2^32
};

// target[i] = source[i] * (kept ? scale : 0) for begin <= i < end; begin is a
// multiple of 4.
template <class T>
using DropoutKernel = void (*)(const DropoutMask& mask, T scale,
                               const T* source, T* target, int64_t begin,
                               int64_t end);

// The kernel for this machine, see cpu_features.h. T: float or double.
template <class T>
DropoutKernel<T> dropout_kernel();

}  // namespace remat::kernels
