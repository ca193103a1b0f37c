#include "remat/store/side_streams.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace remat::detail {

StreamMark::StreamMark(const c10::Stream& stream)
    : stream_(stream), event_(stream.device_type()) {
  event_.record(stream);
}

std::unique_ptr<SideStreams> make_side_streams(at::Device device) {
  if (device.is_cpu() || !c10::impl::hasDeviceGuardImpl(device.type())) {
    return nullptr;
  }
  const c10::impl::VirtualGuardImpl guard(device.type());
  // There is no asking: what a device does not have throws.
  try {
    SideStreams streams{guard.getStreamFromGlobalPool(device),
                        guard.getStreamFromGlobalPool(device)};
    StreamMark(streams.out).hold(streams.in);
    return std::make_unique<SideStreams>(streams);
  } catch (const c10::Error&) {
    return nullptr;
  }
}

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace remat::detail
