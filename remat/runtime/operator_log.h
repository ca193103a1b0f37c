// The operators that a region runs, for errors that say where two runs part.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "remat/runtime/operator_scope.h"

namespace remat::detail {

// Writes each operator's name to a list, and passes it on.
class OperatorLog final : public OperatorInterceptor {
 public:
  // next may be null.
  OperatorLog(std::vector<std::string>& names, OperatorInterceptor* next)
      : names_(names), next_(next) {}

  bool replace(const c10::OperatorHandle& op,
               torch::jit::Stack& stack) override;
  void ran(const c10::OperatorHandle& op,
           const torch::jit::Stack& stack) override;
  void named(std::string_view name, const at::Tensor& tensor) override;
  OperatorInterceptor* of_all_operators() override {
    return next_ != nullptr && next_->of_all_operators() != nullptr ? this
                                                                    : nullptr;
  }

 private:
  std::vector<std::string>& names_;
  OperatorInterceptor* const next_;
};

// "aten::sum.dim_IntList".
std::string operator_name(const c10::OperatorHandle& op);

// A line on the first operator that is another one when run again, with the one
// before it; on the last that both ran where one list is the beginning of the
// other.
std::string first_difference(const std::vector<std::string>& forward,
                             const std::vector<std::string>& again);

}  // namespace remat::detail
