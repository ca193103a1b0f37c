// The machine that the program runs on, measured briefly.
#pragma once

#include "remat/estimate/device.h"

namespace remat::cli {

// Half a second of matrix products and of copies in float32 on `threads`
// threads; 0: all cores. Memory is what is built in; limits of a control group
// are not seen. Halves have no rate: remat trains in float32 on a CPU.
estimate::Device measure_this_machine(int threads);

}  // namespace remat::cli
