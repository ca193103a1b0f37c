#include "remat/cli/this_machine.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "remat/base/error.h"
#include "remat/memory/threads.h"

namespace remat::cli {
namespace {

constexpr double kSecondsEach = 0.25;

// The fastest of as many runs as fit into the time, after one to warm up.
template <class Run>
double best_seconds(const Run& run) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  run();
  const Clock::time_point begin = Clock::now();
  double best = 1e9;
  do {
    const Clock::time_point start = Clock::now();
    run();
    best = std::min(best, seconds_since(start));
  } while (seconds_since(begin) < kSecondsEach);
  return best;
}

}  // namespace

estimate::Device measure_this_machine(int threads) {
  set_compute_threads(threads > 0 ? threads : default_compute_threads());
  const c10::InferenceMode no_gradients;
  estimate::Device device;
  device.name = "this-machine";
  device.source = "measured: products of 1,024 x 1,024 and copies, float32";
  device.is_cpu = true;
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  if (pages < 1 || page_bytes < 1) {
    fail("plan",
         "the system does not tell its memory; describe the machine "
         "in a device file");
  }
  device.memory_bytes = pages * page_bytes;

  constexpr int64_t kSide = 1024;
  const at::Tensor x = at::ones({kSide, kSide}), y = at::ones({kSide, kSide});
  at::Tensor product = at::empty({kSide, kSide});
  const double product_seconds =
      best_seconds([&] { at::mm_out(product, x, y); });
  device.flops_per_second[0] = 2.0 * kSide * kSide * kSide / product_seconds;

  // Larger than the caches; read once and written once.
  constexpr int64_t kNumbers = int64_t{1} << 25;
  const at::Tensor from = at::ones({kNumbers});
  const at::Tensor to = at::empty({kNumbers});
  const double copy_seconds = best_seconds([&] { to.copy_(from); });
  device.memory_bytes_per_second = 2.0 * 4 * kNumbers / copy_seconds;
  // What was measured is what kernels reach.
  device.matrix_efficiency = 1;
  device.memory_efficiency = 1;
  return device;
}

}  // namespace remat::cli
