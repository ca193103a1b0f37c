// What the files of the software device share.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>

#include "tests/device/scheduler.h"

namespace remat::software {

Scheduler& scheduler();
c10::Allocator* allocator();
// Of the calling thread.
int current_stream();

struct Costs {
  double seconds_of_operator = 0;
  double seconds_of_copied_byte = 0;
};
Costs& costs();

// Throws if fail_copy_after() says so.
void count_copy();

}  // namespace remat::software
