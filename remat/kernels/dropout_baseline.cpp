#include "remat/kernels/cpu_features.h"
#include "remat/kernels/dropout_impl.h"

namespace remat::kernels {

#ifdef REMAT_HAVE_AVX2
// In dropout_avx2.cpp.
template <class T>
DropoutKernel<T> avx2_dropout_kernel();
#endif

template <class T>
DropoutKernel<T> dropout_kernel() {
#ifdef REMAT_HAVE_AVX2
  if (uses_avx2()) return avx2_dropout_kernel<T>();
#endif
  return dropout_run<T>;
}

template DropoutKernel<float> dropout_kernel<float>();
template DropoutKernel<double> dropout_kernel<double>();

}  // namespace remat::kernels
