#include "remat/runtime/recompute_group.h"

#include "remat/base/error.h"
#include "remat/runtime/engine.h"

namespace remat {

RecomputeGroup::RecomputeGroup() : pass_(detail::new_backward_pass()) {
  if (detail::backward_pass_of_group() != nullptr) {
    fail_usage("checkpoint",
               "a RecomputeGroup begins inside another one of this thread; "
               "groups do not nest");
  }
  detail::install_engine();
  detail::set_backward_pass_of_group(pass_);
}

RecomputeGroup::~RecomputeGroup() {
  detail::set_backward_pass_of_group(nullptr);
  pass_->end();
}

}  // namespace remat
