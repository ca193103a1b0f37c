#include "remat/runtime/dropout.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "remat/base/error.h"
#include "remat/kernels/dropout.h"
#include "remat/runtime/recompute_context.h"

namespace remat {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_probability(double p) {
  if (!(p >= 0.0 && p <= 1.0)) {
    fail_usage("dropout", "p is ", p, "; it must be from 0 to 1");
  }
}

// Linear in x: backward is the same function of the gradient.
struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            double p, int64_t seed) {
    context->saved_data["p"] = p;
    context->saved_data["seed"] = seed;
    return kernels::dropout(x, p, static_cast<uint64_t>(seed));
  }

  static variable_list backward(AutogradContext* context,
                                variable_list gradients) {
    const double p = context->saved_data["p"].toDouble();
    const int64_t seed = context->saved_data["seed"].toInt();
    return {apply(gradients[0], p, seed), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor stateless_dropout(const at::Tensor& x, double p, uint64_t seed) {
  check_probability(p);
  if (!x.is_floating_point()) {
    fail_usage("dropout", "x is ", c10::toString(x.scalar_type()), x.sizes(),
               "; it must be of a floating-point type");
  }
  if (p == 0.0) {
    return x;
  }
  if (p == 1.0) {
    return x * 0.0;
  }
  return DropoutFunction::apply(x, p, static_cast<int64_t>(seed));
}

Dropout::Dropout(double p, std::optional<uint64_t> layer_seed)
    : p_(p), layer_seed_(layer_seed) {
  check_probability(p);
}

at::Tensor Dropout::forward(const at::Tensor& x) const {
  if (!training_ || p_ == 0.0) {
    return x;
  }
  return stateless_dropout(x, p_, next_layer_seed(layer_seed_));
}

}  // namespace remat
