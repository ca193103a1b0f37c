// Changes of the calling thread's RecomputeContext, taken back at scope end.
#pragma once

#include "remat/runtime/recompute_context.h"

namespace remat::detail {

// Replaces the whole context: for a recomputation.
class ContextGuard {
 public:
  explicit ContextGuard(const RecomputeContext& context);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  RecomputeContext outer_;
};

// One region deeper: for a forward, which goes on numbering seeds.
class DepthGuard {
 public:
  DepthGuard();
  ~DepthGuard();
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
};

}  // namespace remat::detail
