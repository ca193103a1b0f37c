#include "remat/base/version.h"

namespace remat {

const char* version() { return REMAT_VERSION; }

}  // namespace remat
