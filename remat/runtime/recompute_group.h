// Several backward passes that share one recomputation.
#pragma once

#include <memory>

namespace remat {

namespace detail {
class BackwardPass;
}

// While it lives, the backward passes that begin in this thread count as one:
// what the first recomputes serves the others too, where each alone would run
// the region again.
//
//   { remat::RecomputeGroup group;
//     loss_a.backward({}, /*retain_graph=*/true);
//     loss_b.backward(); }
//
// Recomputed values that no pass has used stay until its end. A pass that needs
// a value that another has used up recomputes again. Throws UsageError inside
// another group.
class RecomputeGroup {
 public:
  RecomputeGroup();
  ~RecomputeGroup();
  RecomputeGroup(const RecomputeGroup&) = delete;
  RecomputeGroup& operator=(const RecomputeGroup&) = delete;

 private:
  std::shared_ptr<detail::BackwardPass> pass_;
};

}  // namespace remat
