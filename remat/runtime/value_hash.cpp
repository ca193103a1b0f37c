#include "remat/runtime/value_hash.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace remat::detail {

std::optional<uint64_t> value_hash(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta() || !tensor.has_storage()) {
    return std::nullopt;
  }
  const c10::NoGradGuard no_grad;
  const at::Tensor values =
      tensor.detach().resolve_conj().resolve_neg().to(at::kCPU).contiguous();
  return XXH3_64bits(values.data_ptr(), values.nbytes());
}

}  // namespace remat::detail
