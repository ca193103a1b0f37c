// Compiled with -mavx2 -mfma, called only where the machine has both.
#include "remat/kernels/block_attention_impl.h"

namespace remat::kernels {

template <class T>
const AttentionKernels<T>& avx2_attention_kernels() {
  return BlockAttention<T, 32 / sizeof(T)>::kKernels;
}

template const AttentionKernels<float>& avx2_attention_kernels<float>();
template const AttentionKernels<double>& avx2_attention_kernels<double>();

}  // namespace remat::kernels
