#include <unistd.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "remat/cli/cli.h"

namespace {

// Threads that wait must not take a core from those that work: OpenMP's and
// OpenBLAS's are two pools on the same cores, and a training step is a quarter
// slower when they spin. OpenMP asks the environment while it is loaded, so
// this runs before any library does, and starts the program once more.
void let_threads_sleep(int, char** arguments, char** environment) {
  std::vector<char*> with_policy;
  for (; *environment != nullptr; ++environment) {
    for (const char* name : {"OMP_WAIT_POLICY=", "GOMP_SPINCOUNT="}) {
      if (std::strncmp(*environment, name, std::strlen(name)) == 0) {
        return;
      }
    }
    with_policy.push_back(*environment);
  }
  static char policy[] = "OMP_WAIT_POLICY=passive";
  with_policy.push_back(policy);
  with_policy.push_back(nullptr);
  // Where that is not possible, the threads spin.
  execve("/proc/self/exe", arguments, with_policy.data());
}

[[gnu::section(".preinit_array"),
  gnu::used]] void (*const before_libraries)(int, char**,
                                             char**) = let_threads_sleep;

}  // namespace

int main(int argc, char** argv) {
  // A write beyond the limit on file sizes then fails, and is reported, like
  // one on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  return remat::cli::run(argc, argv);
}
