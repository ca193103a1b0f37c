// The program `remat`.
#pragma once

namespace remat::cli {

// Runs the command of argv[1]. Results go to standard output, progress and
// errors to standard error. Returns the exit code and throws nothing: 0 done,
// 1 failed, 2 wrong usage or configuration, 3 no plan fits, 130 interrupted
// after the model was saved.
int run(int argc, const char* const* argv);

}  // namespace remat::cli
