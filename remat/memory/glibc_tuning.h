// How the C library keeps the memory of large tensors.
#pragma once

namespace remat {

// Makes glibc keep freed blocks instead of handing them back to the system:
// by default it maps every large tensor afresh, and most of a training step is
// then the kernel zeroing pages. For the whole process; call it first in main.
// The price: freed memory stays resident until the process ends.
// benchmarks/allocator_step measures the difference.
//
// Returns false where the C library is another one, or refuses.
bool tune_glibc_allocator();

}  // namespace remat
