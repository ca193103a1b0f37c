// How many threads compute.
#pragma once

namespace remat {

// The cores that this process may run on.
int default_compute_threads();

// For the whole process: ATen's intra-operation threads, and those of OpenBLAS
// where it serves the matrix products, which ATen does not tell. Throws
// UsageError for a number below 1 or above 1024.
void set_compute_threads(int threads);

}  // namespace remat
