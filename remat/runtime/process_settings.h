// Settings of the whole process that change what operators compute.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/typeid.h>

#include "remat/runtime/torch_compat.h"

namespace remat::detail {

// The default dtype, whether deterministic algorithms are asked for, and how
// exact products of floats are (TF32 and the like).
struct ProcessSettings {
  caffe2::TypeMeta default_dtype;
  bool deterministic = false;
  bool deterministic_warn_only = false;
  compat::Float32Settings float32;

  static ProcessSettings now();
  bool operator==(const ProcessSettings& other) const;
};

// Sets them, where they are others, until scope end; other threads see that.
class ProcessSettingsScope {
 public:
  explicit ProcessSettingsScope(const ProcessSettings& settings);
  ~ProcessSettingsScope();
  ProcessSettingsScope(const ProcessSettingsScope&) = delete;
  ProcessSettingsScope& operator=(const ProcessSettingsScope&) = delete;

 private:
  const ProcessSettings outer_;
  const bool changed_;
};

}  // namespace remat::detail
