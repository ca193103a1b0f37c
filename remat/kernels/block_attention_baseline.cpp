#include "remat/kernels/block_attention_impl.h"
#include "remat/kernels/cpu_features.h"

namespace remat::kernels {

#ifdef REMAT_HAVE_AVX2
// In block_attention_avx2.cpp.
template <class T>
const AttentionKernels<T>& avx2_attention_kernels();
#endif

int64_t attention_scratch(int64_t head_dim, int64_t keys) {
  const int64_t width = padded(head_dim);
  // Seven tiles of rows, two of scores, vectors; then the gradients of keys.
  return kAttentionTile * (7 * width + 2 * kAttentionTile + 4) +
         2 * (keys + kPaddedTo) * width;
}

template <class T>
const AttentionKernels<T>& attention_kernels() {
#ifdef REMAT_HAVE_AVX2
  if (uses_avx2()) return avx2_attention_kernels<T>();
#endif
  return BlockAttention<T, 16 / sizeof(T)>::kKernels;
}

template const AttentionKernels<float>& attention_kernels<float>();
template const AttentionKernels<double>& attention_kernels<double>();

}  // namespace remat::kernels
