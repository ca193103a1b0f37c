// The autocast state of the calling thread, to be replayed.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <vector>

namespace remat::detail {

// Taken at construction, for every device type that autocast knows.
class AutocastState {
 public:
  AutocastState();

  // Sets the calling thread's state to this one.
  void restore() const;

  // Turns off the cache of cast weights. The cache is keyed by weight and
  // spans regions: a recomputation must neither find casts that belong to
  // another graph nor leave its own behind.
  void disable_cache() { cache_enabled_ = false; }

 private:
  struct Device {
    c10::DeviceType type;
    bool enabled;
    c10::ScalarType dtype;
  };
  std::vector<Device> devices_;
  bool cache_enabled_;
};

}  // namespace remat::detail
