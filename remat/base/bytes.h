// Sizes in bytes as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace remat {

// "1.25 GiB", "611 MiB", "64 B": binary units, at most three digits before the
// point; bytes below 1 KiB are exact.
std::string format_bytes(int64_t bytes);

// 1234567 -> "1,234,567".
std::string format_thousands(int64_t value);

// Reads "900MiB", "4GiB", "4GB" (10^9), "1.5GiB" or plain bytes. Throws
// UsageError that names the text for anything else, negative sizes and sizes
// beyond 2^63 - 1.
int64_t parse_bytes(std::string_view text);

}  // namespace remat
