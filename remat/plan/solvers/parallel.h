// A loop over independent indices on a few threads.
#pragma once

#include <functional>

namespace remat::plan {

// 0: as many as the machine has processors, at most eight.
int thread_count(int wanted);

// Calls work(thread, index) for each index below count; which thread gets which
// index is open, so the result must not depend on it. Exceptions that work()
// throws are passed on after all threads have ended.
void parallel_for(int threads, int count,
                  const std::function<void(int, int)>& work);

}  // namespace remat::plan
