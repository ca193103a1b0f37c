#include "remat/estimate/model.h"

namespace remat::estimate {
namespace {

int64_t linear(int64_t inputs, int64_t outputs, bool with_bias = true) {
  return inputs * outputs + (with_bias ? outputs : 0);
}

int64_t norm(int64_t size) { return 2 * size; }

int64_t embeddings_of(const Model& m) {
  const int64_t rows = m.vocab_size + m.max_positions + m.token_types;
  return rows * m.hidden_size +
         (m.family == Family::kGpt2 ? 0 : norm(m.hidden_size));
}

// The same in all three: two norms, four projections, two more.
int64_t layer_of(const Model& m) {
  const int64_t width = m.hidden_size, inner = m.intermediate_size;
  return 3 * linear(width, width, m.has_projection_bias) +
         linear(width, width) + linear(width, inner) + linear(inner, width) +
         2 * norm(width);
}

// The output weights of a language model, if they are not the embeddings.
int64_t untied(const Model& m) {
  return m.ties_embeddings ? 0 : m.vocab_size * m.hidden_size;
}

int64_t gpt2_head(const Model& m) {
  const int64_t width = m.hidden_size;
  switch (m.head) {
    case Head::kClassification:
      return norm(width) + linear(width, m.labels, /*with_bias=*/false);
    case Head::kLanguageModel:
      return norm(width) + untied(m);
    case Head::kNone:
      break;
  }
  return norm(width);
}

int64_t encoder_head(const Model& m) {
  const int64_t width = m.hidden_size, pooler = linear(width, width);
  switch (m.head) {
    case Head::kClassification:
      return pooler + linear(width, m.labels) +
             (m.family == Family::kBigBird ? linear(width, width) : 0);
    case Head::kLanguageModel:
      return linear(width, width) + norm(width) + m.vocab_size + untied(m);
    case Head::kNone:
      break;
  }
  return pooler;
}

}  // namespace

Parameters count_parameters(const Model& m) {
  Parameters count;
  count.embeddings = embeddings_of(m);
  count.layer = layer_of(m);
  count.head = m.family == Family::kGpt2 ? gpt2_head(m) : encoder_head(m);
  if (m.family == Family::kBigBird && m.head == Head::kClassification) {
    count.unused = linear(m.hidden_size, m.hidden_size);
  }
  count.total = count.embeddings + m.layers * count.layer + count.head;
  return count;
}

}  // namespace remat::estimate
