// Number types of activations, by the names that config files use.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace remat::estimate {

enum class Dtype { kFloat32, kBFloat16, kFloat16 };

inline constexpr std::array<Dtype, 3> kDtypes{Dtype::kFloat32, Dtype::kBFloat16,
                                              Dtype::kFloat16};

// "float32", "bfloat16", "float16".
std::string_view name_of(Dtype dtype);

// Bytes of one number.
int64_t bytes_of(Dtype dtype);

// Throws UsageError "[plan] `where` is TEXT; ..." for another name; fp32, bf16
// and fp16 are understood.
Dtype parse_dtype(std::string_view where, std::string_view text);

}  // namespace remat::estimate
