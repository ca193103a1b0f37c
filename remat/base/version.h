// The version of remat, as `remat --version` prints it.
#pragma once

namespace remat {

// "major.minor.patch", from the project's build description.
const char* version();

}  // namespace remat
