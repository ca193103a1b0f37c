#include "remat/runtime/operator_traits.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

namespace remat::detail {

bool is_factory(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  const auto& arguments = op.schema().arguments();
  return name.rfind("aten::new_", 0) == 0 ||
         (name.size() > 5 && name.rfind("_like") == name.size() - 5) ||
         std::none_of(arguments.begin(), arguments.end(),
                      [](const c10::Argument& argument) {
                        return argument.type()->str().find("Tensor") !=
                               std::string::npos;
                      });
}

bool is_random(const c10::OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  return op.hasTag(at::Tag::nondeterministic_seeded) ||
         std::any_of(arguments.begin(), arguments.end(),
                     [](const c10::Argument& argument) {
                       return argument.type()->str().find("Generator") !=
                              std::string::npos;
                     });
}

bool computes_new_tensors(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  if (schema.returns().empty() || schema.is_mutable() || is_random(op) ||
      is_factory(op)) {
    return false;
  }
  return std::all_of(
      schema.returns().begin(), schema.returns().end(),
      [](const c10::Argument& output) {
        return output.alias_info() == nullptr &&
               output.type()->isSubtypeOf(*c10::TensorType::get());
      });
}

at::Tensor without_graph(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return at::Tensor(impl.shallow_copy_and_detach(
      impl.version_counter(), /*allow_tensor_metadata_change=*/false));
}

}  // namespace remat::detail
