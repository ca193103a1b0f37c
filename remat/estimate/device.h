// What an estimate knows of a machine, and machines known by name.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "remat/estimate/dtype.h"

namespace remat::estimate {

struct Device {
  std::string name;
  // Where the figures come from.
  std::string source;

  int64_t memory_bytes = 0;
  // Peaks, as data sheets have them; 0: unknown.
  double memory_bytes_per_second = 0;
  // Floating-point operations of matrix products, dense, by Dtype; a product
  // of m x k and k x n has 2 m k n.
  std::array<double, kDtypes.size()> flops_per_second = {};
  // To or from host memory, one way.
  double host_link_bytes_per_second = 0;
  double disk_bytes_per_second = 0;

  // The share of the peaks that kernels reach. Assumptions: large matrix
  // products and passes over memory do better, small ones worse.
  double matrix_efficiency = 0.6;
  double memory_efficiency = 0.8;
  double link_efficiency = 0.8;

  // Whether values are in the memory that the program itself runs in, so that
  // kernels of the CPU compute them.
  bool is_cpu = false;

  double peak_flops(Dtype dtype) const {
    return flops_per_second[static_cast<size_t>(dtype)];
  }
};

// Accelerators with the figures of their vendor's data sheets. Memory is the
// gigabytes of the sheet as 10^9 bytes: a device reports a few percent more,
// of which its driver and libraries take a part.
const std::vector<Device>& known_devices();
std::vector<std::string> known_device_names();

// By name; throws UsageError that suggests the nearest name.
const Device& find_known_device(std::string_view name);

// The JSON form, "remat-device". from_json throws UsageError naming source and
// field for broken JSON, unknown or missing fields, a newer version, negative
// or absurd numbers and efficiencies outside (0, 1].
std::string to_json(const Device& device);
Device device_from_json(std::string_view text,
                        std::string_view source = "device");
Device read_device(const std::filesystem::path& path);

}  // namespace remat::estimate
