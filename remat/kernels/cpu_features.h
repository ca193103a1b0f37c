// Which instruction set the kernels run with, found at run time.
#pragma once

namespace remat::kernels {

// Whether kernels use AVX2 and FMA: compiled in, and the machine has them.
bool uses_avx2();

// Turns AVX2 off, or on again where there is any: for tests and benchmarks,
// between kernels, not during one.
void allow_avx2(bool allowed);

}  // namespace remat::kernels
