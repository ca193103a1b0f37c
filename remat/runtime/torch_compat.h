// What differs between the versions of libtorch that remat builds with: the
// only file that asks for a version.
#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <torch/version.h>

#include <array>

#define REMAT_TORCH_VERSION (TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR)

namespace remat::compat {

#if REMAT_TORCH_VERSION >= 204

// The device types that autocast knows and this build can have.
inline constexpr std::array kAutocastDevices{
    c10::DeviceType::CPU, c10::DeviceType::CUDA, c10::DeviceType::XPU,
    c10::DeviceType::MPS, c10::DeviceType::HPU,  c10::DeviceType::PrivateUse1};

inline bool autocast_is_enabled(c10::DeviceType device) {
  return at::autocast::is_autocast_enabled(device);
}
inline void set_autocast_enabled(c10::DeviceType device, bool on) {
  at::autocast::set_autocast_enabled(device, on);
}
inline at::ScalarType autocast_dtype(c10::DeviceType device) {
  return at::autocast::get_autocast_dtype(device);
}
inline void set_autocast_dtype(c10::DeviceType device, at::ScalarType dtype) {
  at::autocast::set_autocast_dtype(device, dtype);
}

#else

inline constexpr std::array kAutocastDevices{
    c10::DeviceType::CPU, c10::DeviceType::CUDA, c10::DeviceType::XPU};

inline bool autocast_is_enabled(c10::DeviceType device) {
  switch (device) {
    case c10::DeviceType::CPU:
      return at::autocast::is_cpu_enabled();
    case c10::DeviceType::XPU:
      return at::autocast::is_xpu_enabled();
    default:
      return at::autocast::is_enabled();
  }
}
inline void set_autocast_enabled(c10::DeviceType device, bool on) {
  switch (device) {
    case c10::DeviceType::CPU:
      return at::autocast::set_cpu_enabled(on);
    case c10::DeviceType::XPU:
      return at::autocast::set_xpu_enabled(on);
    default:
      return at::autocast::set_enabled(on);
  }
}
inline at::ScalarType autocast_dtype(c10::DeviceType device) {
  switch (device) {
    case c10::DeviceType::CPU:
      return at::autocast::get_autocast_cpu_dtype();
    case c10::DeviceType::XPU:
      return at::autocast::get_autocast_xpu_dtype();
    default:
      return at::autocast::get_autocast_gpu_dtype();
  }
}
inline void set_autocast_dtype(c10::DeviceType device, at::ScalarType dtype) {
  switch (device) {
    case c10::DeviceType::CPU:
      return at::autocast::set_autocast_cpu_dtype(dtype);
    case c10::DeviceType::XPU:
      return at::autocast::set_autocast_xpu_dtype(dtype);
    default:
      return at::autocast::set_autocast_gpu_dtype(dtype);
  }
}

#endif

}  // namespace remat::compat
