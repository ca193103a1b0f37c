#include <csignal>

#include "remat/cli/cli.h"

int main(int argc, char** argv) {
  // A write beyond the limit on file sizes then fails, and is reported, like
  // one on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  return remat::cli::run(argc, argv);
}
