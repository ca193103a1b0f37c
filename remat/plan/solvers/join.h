// Chains of fewer, longer stages, for chains too long to be solved stage by
// stage.
#pragma once

#include <vector>

#include "remat/plan/chain.h"
#include "remat/plan/schedule.h"

namespace remat::plan {

// So many neighbouring stages joined to one; the last one may be of fewer.
// Whatever fits with the joined chain fits with the real one. Options are lost.
class JoinedChain {
 public:
  JoinedChain(const Chain& chain, int together);

  const Chain& chain() const { return joined_; }
  // The schedule of the joined chain, for the real one.
  Schedule expand(const Schedule& schedule) const;

 private:
  Stage join(const Chain& chain, int begin, int end) const;

  Chain joined_;
  // The first stage of each group, and the number of stages.
  std::vector<int> begin_;
};

}  // namespace remat::plan
