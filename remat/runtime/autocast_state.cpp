#include "remat/runtime/autocast_state.h"

#include "remat/runtime/torch_compat.h"

namespace remat::detail {

AutocastState::AutocastState()
    : cache_enabled_(at::autocast::is_autocast_cache_enabled()) {
  for (const c10::DeviceType type : compat::kAutocastDevices) {
    devices_.push_back({type, compat::autocast_is_enabled(type),
                        compat::autocast_dtype(type)});
  }
}

void AutocastState::restore() const {
  for (const Device& device : devices_) {
    compat::set_autocast_enabled(device.type, device.enabled);
    compat::set_autocast_dtype(device.type, device.dtype);
  }
  at::autocast::set_autocast_cache_enabled(cache_enabled_);
}

}  // namespace remat::detail
