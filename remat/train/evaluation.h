// A classifier's answers on a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "remat/data/batches.h"
#include "remat/nn/bigbird.h"
#include "remat/train/classification_metrics.h"

namespace remat::train {

struct Evaluation {
  int64_t examples = 0;
  double loss = 0;  // mean cross-entropy over the examples
  double seconds = 0;
  ClassificationMetrics metrics;
};

// Without dropout or gradients; the model's mode is put back. The data set is
// labelled and not empty. `stop` is asked before each batch: if it says yes
// the result is empty. Throws Error if the model answers NaN or infinity.
std::optional<Evaluation> evaluate(
    nn::BigBirdClassifier& model, const data::Dataset& dataset,
    int64_t batch_size, int64_t pad_id,
    const std::function<bool()>& stop = [] { return false; });

// [example][class] probabilities, in the order of the data set.
// Throws Error if the model answers NaN or infinity.
std::vector<std::vector<double>> predict(nn::BigBirdClassifier& model,
                                         const data::Dataset& dataset,
                                         int64_t batch_size, int64_t pad_id);

}  // namespace remat::train
