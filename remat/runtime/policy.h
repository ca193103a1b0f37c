// Which results a region keeps although it recomputes the rest: a matrix
// product costs much time and its result little memory.
//
//   remat::checkpoint(
//       remat::CheckpointOptions().policy(remat::policy::matmuls()), fn, x);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace remat {

// One call of an ATen operator below autograd, as a policy sees it: at::linear
// is aten::addmm there.
struct OperatorCall {
  std::string_view name;      // "aten::mm"
  std::string_view overload;  // "", "dim_IntList", ...
  const std::vector<at::Tensor>& outputs;
  int64_t output_bytes;
};

// What of a region's forward is kept. In the recomputation a kept result stands
// in for its operator, which is not run again. Asked in forward only. Whatever
// a policy says, views, new memory such as at::zeros, operators that change a
// tensor in place and operators that draw random numbers are run again; so is
// one whose result was changed in place since.
struct Policy {
  // True: keep the outputs of this call. Empty: of none.
  std::function<bool(const OperatorCall&)> keeps;

  // Results named by remat::keep(name, tensor) that are kept.
  std::vector<std::string> names;
};

namespace policy {

// Every result: then hardly anything but views is run again.
Policy everything();

// None: what a region without a policy does.
Policy nothing();

// Results of matrix products: mm, addmm, bmm, baddbmm, addbmm, mv, addmv, dot,
// and linear where autograd does not take it apart.
Policy matmuls();

// Results of these operators, such as "aten::mm" (any overload) or
// "aten::sum.dim_IntList". Throws UsageError for a name that libtorch does not
// know.
Policy operators(std::vector<std::string> names);

// Results that the region names: remat::keep("scores", tensor).
Policy names(std::vector<std::string> names);

// What either keeps.
Policy either(Policy a, Policy b);

}  // namespace policy

// Names a result for policies, and returns it. The operator that computed it,
// or the tensor it is a view of, is not run again where the policy of the
// region has the name. Does nothing elsewhere.
at::Tensor keep(std::string_view name, const at::Tensor& tensor);

}  // namespace remat
