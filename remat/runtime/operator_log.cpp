#include "remat/runtime/operator_log.h"

#include <algorithm>

#include "remat/base/error.h"

namespace remat::detail {

bool OperatorLog::replace(const c10::OperatorHandle& op,
                          torch::jit::Stack& stack) {
  names_.push_back(operator_name(op));
  return next_ != nullptr && next_->replace(op, stack);
}

void OperatorLog::ran(const c10::OperatorHandle& op,
                      const torch::jit::Stack& stack) {
  if (next_ != nullptr) {
    next_->ran(op, stack);
  }
}

void OperatorLog::named(std::string_view name, const at::Tensor& tensor) {
  if (next_ != nullptr) {
    next_->named(name, tensor);
  }
}

std::string operator_name(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.overload_name.empty() ? name.name
                                    : name.name + "." + name.overload_name;
}

std::string first_difference(const std::vector<std::string>& forward,
                             const std::vector<std::string>& again) {
  const size_t both = std::min(forward.size(), again.size());
  const auto differs = static_cast<size_t>(
      std::mismatch(forward.begin(), forward.begin() + static_cast<long>(both),
                    again.begin())
          .first -
      forward.begin());
  const std::string after = differs == 0 ? "at the beginning"
                                         : str("after operator ", differs - 1,
                                               ", ", forward[differs - 1]);
  const auto name = [differs](const std::vector<std::string>& list) {
    return differs < list.size() ? list[differs] : std::string("nothing more");
  };
  return str("Operators: ", after, ", ", name(forward), " in forward, ",
             name(again), " recomputed (", forward.size(), " and ",
             again.size(), " in all).");
}

}  // namespace remat::detail
