#include "remat/memory/threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <sched.h>

#include <algorithm>

#include "remat/base/error.h"

namespace remat {

int default_compute_threads() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    return 1;
  }
  return std::max(1, CPU_COUNT(&allowed));
}

void set_compute_threads(int threads) {
  if (threads < 1 || threads > 1024) {
    fail_usage("threads", "the number of threads is ", threads,
               "; it must be from 1 to 1024 (the cores here: ",
               default_compute_threads(), ")");
  }
  at::set_num_threads(threads);
  // Looked up at run time: which BLAS stands behind libblas.so.3 is the
  // system's choice.
  using SetThreads = void (*)(int);
  const auto set_blas_threads = reinterpret_cast<SetThreads>(
      dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (set_blas_threads != nullptr) {
    set_blas_threads(threads);
  }
}

}  // namespace remat
