// How good predicted classes are.
#pragma once

#include <cstdint>
#include <vector>

namespace remat::train {

struct ClassMetrics {
  double precision = 0;  // 0 where the class was never predicted
  double recall = 0;     // 0 where it does not occur
  double f1 = 0;         // 2 p r / (p + r); 0 where both are
  int64_t support = 0;   // how often it occurs
};

struct ClassificationMetrics {
  double accuracy = 0;

  // The unweighted mean of f1 over the classes that occur among the labels or
  // the predictions, as scikit-learn's f1_score(average="macro").
  double macro_f1 = 0;

  // The accuracy of always answering the most frequent label.
  double majority_accuracy = 0;

  std::vector<ClassMetrics> classes;  // by class index
};

// labels and predictions: class indices in [0, classes), as many of each.
// All zeros for none.
ClassificationMetrics classification_metrics(
    const std::vector<int64_t>& labels, const std::vector<int64_t>& predictions,
    int64_t classes);

}  // namespace remat::train
