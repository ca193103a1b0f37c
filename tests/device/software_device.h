// A device of software (c10's PrivateUse1) for tests of what runs beside the
// host: kernels and copies are queued on the current stream and read and write
// memory only when their turn comes, in an order that the test chooses. Freed
// memory is spoiled and used again at once, in the order of its stream, as a
// caching allocator of a real device does. So a wait that is missing shows as
// wrong values, and always in the same way.
//
// Operators are those of the CPU; random ones have no order and are not for
// use.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tests/device/scheduler.h"

namespace remat::software {

inline const at::Device kDevice(at::kPrivateUse1, 0);

// Finishes what is queued, then begins with no counts, no costs, no failures.
void reset(Order order, uint64_t seed = 0);

// Seconds that operators of the device, and copies to and from the host, take
// by the clocks of the streams. (In operators: views and new memory are none.)
void set_costs(double seconds_of_operator, double seconds_of_copied_byte);

// Runs all that is queued; when, by those clocks, the last of it is done.
double finish();

// How often the host waited for a stream.
int64_t host_waits();

// Memory of tensors on the device now.
int64_t live_bytes();

// How many blocks were handed out that had been another tensor's.
int64_t reused_blocks();

// The copy between host and device after so many more throws; negative: none.
void fail_copy_after(int64_t copies);

}  // namespace remat::software
