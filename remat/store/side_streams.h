// Streams for copies beside the computation, and points in the work of a
// stream that others wait for: c10's, so that any device may have them.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>

namespace remat::detail {

// What was queued on a stream up to the construction.
class StreamMark {
 public:
  explicit StreamMark(const c10::Stream& stream);

  bool reached() const { return event_.query(); }
  // The stream's further work waits for it; the host does not.
  void hold(const c10::Stream& stream) const { event_.block(stream); }
  // The host waits for it.
  void wait() const { stream_.synchronize(); }

 private:
  c10::Stream stream_;
  c10::Event event_;
};

using Mark = std::shared_ptr<const StreamMark>;

inline Mark mark(const c10::Stream& stream) {
  return std::make_shared<const StreamMark>(stream);
}

// The two streams of a device that a store copies on; each runs its copies in
// the order in which they were queued.
struct SideStreams {
  c10::Stream out;
  c10::Stream in;
};

// Null for a device without streams or events.
std::unique_ptr<SideStreams> make_side_streams(at::Device device);

// The calling thread's.
c10::Stream current_stream(at::Device device);

}  // namespace remat::detail
