#include <algorithm>

#include "remat/base/error.h"
#include "remat/base/suggest.h"
#include "remat/estimate/device.h"

namespace remat::estimate {
namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;

// Of each data sheet: dense rates (half of those "with sparsity"); float32 is
// the rate without TF32, which libtorch leaves off for matrix products; 16 bits
// are those with accumulation in float32; the link is one direction of PCIe,
// half of the sheet's sum where it gives both.
Device accelerator(const char* name, const char* source, double gigabytes,
                   double gigabytes_per_second, double float32_teraflops,
                   double bfloat16_teraflops, double float16_teraflops,
                   double link_gigabytes_per_second) {
  Device device;
  device.name = name;
  device.source = source;
  device.memory_bytes = static_cast<int64_t>(gigabytes * kGiga);
  device.memory_bytes_per_second = gigabytes_per_second * kGiga;
  device.flops_per_second = {float32_teraflops * kTera,
                             bfloat16_teraflops * kTera,
                             float16_teraflops * kTera};
  device.host_link_bytes_per_second = link_gigabytes_per_second * kGiga;
  return device;
}

}  // namespace

const std::vector<Device>& known_devices() {
  static const std::vector<Device> devices{
      // H100 sheet, column SXM5: 80 GB, 3.35 TB/s, FP32 67, BF16 and FP16 1,979
      // with sparsity, PCIe Gen5 128 GB/s.
      accelerator("h100-80g", "NVIDIA H100 data sheet, SXM5", 80, 3350, 67,
                  989.5, 989.5, 64),
      // H200 sheet: the H100's rates, 141 GB, 4.8 TB/s, PCIe Gen5 128 GB/s.
      accelerator("h200-141g", "NVIDIA H200 data sheet, SXM", 141, 4800, 67,
                  989.5, 989.5, 64),
      // A100 sheet, 80GB SXM: 2,039 GB/s, FP32 19.5, BF16 and FP16 312 dense,
      // PCIe Gen4 64 GB/s.
      accelerator("a100-80g", "NVIDIA A100 data sheet, 80 GB SXM", 80, 2039,
                  19.5, 312, 312, 32),
      // The same of 40 GB: 1,555 GB/s (Ampere white paper, table 3).
      accelerator("a100-40g", "NVIDIA A100 data sheet, 40 GB SXM", 40, 1555,
                  19.5, 312, 312, 32),
      // L4 sheet: 24 GB, 300 GB/s, FP32 30.3, BF16 and FP16 242 with sparsity,
      // PCIe Gen4 x16 64 GB/s.
      accelerator("l4", "NVIDIA L4 data sheet", 24, 300, 30.3, 121, 121, 32),
      // Ada white paper, appendix A: 24 GB, 1,008 GB/s, FP32 82.6, BF16 and
      // FP16 with FP32 accumulate 165.2 dense; PCIe Gen4 x16.
      accelerator("rtx-4090", "NVIDIA Ada GPU Architecture, appendix A", 24,
                  1008, 82.6, 165.2, 165.2, 32),
      // Ampere white paper, table 3, column V100 (SXM2): 32 GB, 900 GB/s, FP32
      // 15.7, FP16 125, no bfloat16; V100 sheet: PCIe Gen3 32 GB/s.
      accelerator("v100-32g", "NVIDIA V100 data sheet, SXM2", 32, 900, 15.7, 0,
                  125, 16),
  };
  return devices;
}

std::vector<std::string> known_device_names() {
  std::vector<std::string> names;
  for (const Device& device : known_devices()) {
    names.push_back(device.name);
  }
  return names;
}

const Device& find_known_device(std::string_view name) {
  const auto& devices = known_devices();
  const auto found =
      std::find_if(devices.begin(), devices.end(),
                   [&](const Device& device) { return device.name == name; });
  if (found != devices.end()) {
    return *found;
  }
  std::string known;
  for (const std::string& other : known_device_names()) {
    known += str(known.empty() ? "" : ", ", other);
  }
  fail_usage("plan", "unknown device ", name,
             did_you_mean(name, known_device_names()), " Known are ", known,
             "; a device file describes any other.");
}

}  // namespace remat::estimate
