// The gradients of all parameters as one vector.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace remat::train {

// The Euclidean norm of all defined gradients. Summed in double precision in
// one fixed order, so it does not depend on the number of threads as
// at::norm does.
double gradient_norm(const std::vector<at::Tensor>& parameters);

// Scales the gradients in place to max_norm if `norm`, their norm, is larger:
// by max_norm / (norm + 1e-6) as torch.nn.utils.clip_grad_norm_.
void clip_gradients(const std::vector<at::Tensor>& parameters, double norm,
                    double max_norm);

// Drops the gradients: their memory is free during the next forward.
void clear_gradients(const std::vector<at::Tensor>& parameters);

}  // namespace remat::train
