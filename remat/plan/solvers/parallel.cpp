#include "remat/plan/solvers/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace remat::plan {

int thread_count(int wanted) {
  if (wanted > 0) {
    return wanted;
  }
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(processors, 1, 8);
}

void parallel_for(int threads, int count,
                  const std::function<void(int, int)>& work) {
  threads = std::min(threads, count);
  if (threads <= 1) {
    for (int i = 0; i < count; ++i) {
      work(0, i);
    }
    return;
  }
  std::atomic<int> next{0};
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto run = [&](int thread) {
    try {
      for (int i = next++; i < count; i = next++) {
        work(thread, i);
      }
    } catch (...) {
      next = count;
      const std::lock_guard lock(error_mutex);
      error = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) {
    others.emplace_back(run, thread);
  }
  run(0);
  for (std::thread& other : others) {
    other.join();
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

}  // namespace remat::plan
