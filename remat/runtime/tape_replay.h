// Computes values of a tape again, from those that are held.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <unordered_map>
#include <vector>

#include "remat/runtime/operator_tape.h"
#include "remat/runtime/process_settings.h"

namespace remat::detail {

// Memory of values (flat_memory()).
using ValueMemory = std::unordered_map<ValueId, at::Tensor>;

// The operators, in order, that compute the values from those for which
// is_held, none of them twice.
std::vector<size_t> operators_for(const OperatorTape& tape,
                                  const std::vector<ValueId>& wanted,
                                  const std::function<bool(ValueId)>& is_held);

// The values that the operators read and do not make themselves.
std::vector<ValueId> sources_of(const OperatorTape& tape,
                                const std::vector<size_t>& operators);

// Runs these operators, below autograd, as they ran in forward, and returns the
// wanted values, which they make. sources: sources_of() them. Values in between
// live only as long as something reads them. Throws CheckpointError where an
// operator makes memory of another size.
ValueMemory replay(const OperatorTape& tape,
                   const std::vector<size_t>& operators,
                   const std::vector<ValueId>& wanted, ValueMemory sources,
                   const ProcessSettings& settings);

}  // namespace remat::detail
