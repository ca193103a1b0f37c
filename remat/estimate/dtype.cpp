#include "remat/estimate/dtype.h"

#include <string>
#include <vector>

#include "remat/base/error.h"
#include "remat/base/suggest.h"

namespace remat::estimate {
namespace {

constexpr std::array<std::string_view, 3> kNames{"float32", "bfloat16",
                                                 "float16"};
constexpr std::array<std::string_view, 3> kShortNames{"fp32", "bf16", "fp16"};

}  // namespace

std::string_view name_of(Dtype dtype) {
  return kNames[static_cast<size_t>(dtype)];
}

int64_t bytes_of(Dtype dtype) { return dtype == Dtype::kFloat32 ? 4 : 2; }

Dtype parse_dtype(std::string_view where, std::string_view text) {
  for (const Dtype dtype : kDtypes) {
    if (text == name_of(dtype) ||
        text == kShortNames[static_cast<size_t>(dtype)]) {
      return dtype;
    }
  }
  fail_usage("plan", where, " is ", text,
             "; it must be float32, bfloat16 or float16",
             did_you_mean(text, {kNames.begin(), kNames.end()}));
}

}  // namespace remat::estimate
