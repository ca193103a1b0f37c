// How the C library keeps the memory of large tensors.
#pragma once

namespace remat {

// Makes glibc keep freed blocks instead of handing them back to the system,
// from the first step on: a large tensor in a mapping of its own costs the
// kernel's zeroing of its pages each time, half as much time again for a step.
// For the whole process; call it first in main. The price: freed memory stays
// resident, and the heap fragments. benchmarks/allocator measures both.
//
// Returns false where the C library is another one, or refuses.
bool tune_glibc_allocator();

}  // namespace remat
