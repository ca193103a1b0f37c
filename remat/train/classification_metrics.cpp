#include "remat/train/classification_metrics.h"

#include <algorithm>

namespace remat::train {
namespace {

double ratio(int64_t part, int64_t whole) {
  return whole == 0 ? 0
                    : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

ClassificationMetrics classification_metrics(
    const std::vector<int64_t>& labels, const std::vector<int64_t>& predictions,
    int64_t classes) {
  std::vector<int64_t> occurred(classes), predicted(classes), hit(classes);
  for (size_t i = 0; i < labels.size(); ++i) {
    ++occurred[labels[i]];
    ++predicted[predictions[i]];
    if (labels[i] == predictions[i]) {
      ++hit[labels[i]];
    }
  }
  ClassificationMetrics metrics;
  const auto examples = static_cast<int64_t>(labels.size());
  int64_t right = 0, most = 0, seen = 0;
  double f1_sum = 0;
  for (int64_t c = 0; c < classes; ++c) {
    ClassMetrics entry;
    entry.precision = ratio(hit[c], predicted[c]);
    entry.recall = ratio(hit[c], occurred[c]);
    entry.f1 = ratio(2 * hit[c], predicted[c] + occurred[c]);
    entry.support = occurred[c];
    metrics.classes.push_back(entry);
    right += hit[c];
    most = std::max(most, occurred[c]);
    if (occurred[c] + predicted[c] > 0) {
      ++seen;
      f1_sum += entry.f1;
    }
  }
  metrics.accuracy = ratio(right, examples);
  metrics.majority_accuracy = ratio(most, examples);
  metrics.macro_f1 = seen == 0 ? 0 : f1_sum / static_cast<double>(seen);
  return metrics;
}

}  // namespace remat::train
