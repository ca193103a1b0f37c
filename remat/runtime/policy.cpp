#include "remat/runtime/policy.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <set>
#include <utility>

#include "remat/base/error.h"
#include "remat/runtime/operator_scope.h"

namespace remat {
namespace policy {
namespace {

std::string full_name(const OperatorCall& call) {
  std::string name(call.name);
  return call.overload.empty() ? name : name + "." + std::string(call.overload);
}

// "aten::mm" of "aten::mm.out".
std::string without_overload(const std::string& name) {
  return name.substr(0, name.find('.'));
}

void check_known(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string wanted = without_overload(name);
  for (const c10::OperatorName& known :
       c10::Dispatcher::singleton().getAllOpNames()) {
    if (known.name == wanted && (dot == std::string::npos ||
                                 known.overload_name == name.substr(dot + 1))) {
      return;
    }
  }
  fail_usage("policy", "there is no operator ", name,
             "; names are those of ATen, such as aten::mm or "
             "aten::sum.dim_IntList");
}

Policy of_operators(std::set<std::string> names) {
  return {.keeps =
              [names = std::move(names)](const OperatorCall& call) {
                return names.count(std::string(call.name)) > 0 ||
                       names.count(full_name(call)) > 0;
              },
          .names = {}};
}

}  // namespace

Policy everything() {
  return {.keeps = [](const OperatorCall&) { return true; }, .names = {}};
}

Policy nothing() { return {}; }

Policy matmuls() {
  return of_operators({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm",
                       "aten::addbmm", "aten::mv", "aten::addmv", "aten::dot",
                       "aten::linear", "aten::mkldnn_linear"});
}

Policy operators(std::vector<std::string> names) {
  std::for_each(names.begin(), names.end(), check_known);
  return of_operators({names.begin(), names.end()});
}

Policy names(std::vector<std::string> names) {
  return {.keeps = nullptr, .names = std::move(names)};
}

Policy either(Policy a, Policy b) {
  std::vector<std::string> names = a.names;
  names.insert(names.end(), b.names.begin(), b.names.end());
  return {.keeps =
              [a = std::move(a.keeps),
               b = std::move(b.keeps)](const OperatorCall& call) {
                return (a && a(call)) || (b && b(call));
              },
          .names = std::move(names)};
}

}  // namespace policy

at::Tensor keep(std::string_view name, const at::Tensor& tensor) {
  if (detail::OperatorInterceptor* const current =
          detail::current_interceptor()) {
    current->named(name, tensor);
  }
  return tensor;
}

}  // namespace remat
