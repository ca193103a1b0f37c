// Compiled with -mavx2 -mfma, called only where the machine has both.
#include "remat/kernels/dropout_impl.h"

namespace remat::kernels {

template <class T>
DropoutKernel<T> avx2_dropout_kernel() {
  return dropout_run<T>;
}

template DropoutKernel<float> avx2_dropout_kernel<float>();
template DropoutKernel<double> avx2_dropout_kernel<double>();

}  // namespace remat::kernels
