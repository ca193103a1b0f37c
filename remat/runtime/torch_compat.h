// What differs between the versions of libtorch that remat builds with: the
// only file that asks for a version.
#pragma once

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <torch/version.h>

#include <array>
#include <cstddef>
#include <utility>

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

#if REMAT_TORCH_VERSION >= 209

// How exact products, convolutions and recurrences of floats are, by backend.
using Float32Settings = std::array<at::Float32Precision, 6>;

template <class Visitor>
void for_each_float32_setting(Visitor&& visit) {
  size_t next = 0;
  for (const auto backend :
       {at::Float32Backend::CUDA, at::Float32Backend::MKLDNN}) {
    for (const auto op :
         {at::Float32Op::CONV, at::Float32Op::RNN, at::Float32Op::MATMUL}) {
      visit(next++, backend, op);
    }
  }
}

inline Float32Settings float32_settings() {
  Float32Settings settings;
  for_each_float32_setting([&](size_t i, auto backend, auto op) {
    settings[i] = at::globalContext().float32Precision(backend, op);
  });
  return settings;
}
// Sets what differs: a setting that is set does not follow those above it.
inline void set_float32_settings(const Float32Settings& settings) {
  for_each_float32_setting([&](size_t i, auto backend, auto op) {
    if (at::globalContext().float32Precision(backend, op) != settings[i]) {
      at::globalContext().setFloat32Precision(backend, op, settings[i]);
    }
  });
}

#else

// Products of floats, and TF32 in convolutions.
using Float32Settings = std::pair<at::Float32MatmulPrecision, bool>;

inline Float32Settings float32_settings() {
  return {at::globalContext().float32MatmulPrecision(),
          at::globalContext().allowTF32CuDNN()};
}
inline void set_float32_settings(const Float32Settings& settings) {
  at::globalContext().setFloat32MatmulPrecision(settings.first);
  at::globalContext().setAllowTF32CuDNN(settings.second);
}

#endif

}  // namespace remat::compat
