#include "remat/runtime/process_settings.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>

namespace remat::detail {
namespace {

void set(const ProcessSettings& settings) {
  c10::set_default_dtype(settings.default_dtype);
  at::globalContext().setDeterministicAlgorithms(
      settings.deterministic, settings.deterministic_warn_only);
  compat::set_float32_settings(settings.float32);
}

}  // namespace

ProcessSettings ProcessSettings::now() {
  const at::Context& context = at::globalContext();
  return {c10::get_default_dtype(), context.deterministicAlgorithms(),
          context.deterministicAlgorithmsWarnOnly(),
          compat::float32_settings()};
}

bool ProcessSettings::operator==(const ProcessSettings& other) const {
  return default_dtype == other.default_dtype &&
         deterministic == other.deterministic &&
         deterministic_warn_only == other.deterministic_warn_only &&
         float32 == other.float32;
}

ProcessSettingsScope::ProcessSettingsScope(const ProcessSettings& settings)
    : outer_(ProcessSettings::now()), changed_(!(outer_ == settings)) {
  if (changed_) {
    set(settings);
  }
}

ProcessSettingsScope::~ProcessSettingsScope() {
  if (changed_) {
    set(outer_);
  }
}

}  // namespace remat::detail
