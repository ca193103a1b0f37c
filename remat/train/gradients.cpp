#include "remat/train/gradients.h"

#include <c10/core/GradMode.h>

#include <array>
#include <cmath>

namespace remat::train {
namespace {

double sum_of_squares(const float* values, int64_t count) {
  // Eight sums in a fixed pattern: as fast as memory without -ffast-math.
  std::array<double, 8> sums{};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t lane = 0; lane < 8; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  for (; i < count; ++i) {
    const double value = values[i];
    sums[0] += value * value;
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
         ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

double sum_of_squares(const double* values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += values[i] * values[i];
  }
  return sum;
}

}  // namespace

double gradient_norm(const std::vector<at::Tensor>& parameters) {
  const c10::NoGradGuard no_grad;
  double sum = 0;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) {
      continue;
    }
    at::Tensor gradient = parameter.grad().contiguous();
    if (gradient.scalar_type() == at::kFloat) {
      sum += sum_of_squares(gradient.data_ptr<float>(), gradient.numel());
    } else {
      gradient = gradient.to(at::kDouble);
      sum += sum_of_squares(gradient.data_ptr<double>(), gradient.numel());
    }
  }
  return std::sqrt(sum);
}

void clip_gradients(const std::vector<at::Tensor>& parameters, double norm,
                    double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) {
    return;
  }
  const c10::NoGradGuard no_grad;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) {
      parameter.grad().mul_(factor);
    }
  }
}

void clear_gradients(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) {
    parameter.mutable_grad().reset();
  }
}

}  // namespace remat::train
