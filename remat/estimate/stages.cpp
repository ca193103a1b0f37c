#include "remat/estimate/stages.h"

#include <utility>

#include "remat/estimate/operators.h"

namespace remat::estimate {
namespace {

using Value = Tape::Value;

// The grain of remat's attention where every query sees every key.
constexpr int64_t kDenseBlock = 64;

int64_t width_bytes(const Model& m, const Shape& shape) {
  return checked_bytes(static_cast<double>(shape.tokens()) *
                       static_cast<double>(m.hidden_size) *
                       static_cast<double>(bytes_of(shape.dtype)));
}

// BigBird of remat/nn: post-norm, each half one statement.
Tape bigbird_layer(const Model& m, const Shape& shape) {
  Operators ops(m, shape, width_bytes(m, shape));
  Tape& tape = ops.tape();
  const Value x = tape.input();
  const double width = ops.width();
  const double inner = static_cast<double>(m.intermediate_size);
  const auto drop = [&](Value value) {
    return ops.dropout(value, ops.tokens() * width, m.hidden_dropout);
  };
  const Value query = ops.linear(x, width, width);
  const Value key = ops.linear(x, width, width);
  const Value attended = ops.attend(query, key, ops.linear(x, width, width));
  tape.end_statement();
  const Value middle =
      ops.layer_norm(ops.add(drop(ops.linear(attended, width, width)), x));
  tape.end_statement();
  const Value active = ops.activate(ops.linear(middle, width, inner));
  tape.end_statement();
  ops.layer_norm(ops.add(drop(ops.linear(active, inner, width)), middle));
  return std::move(tape);
}

// BertLayer of Hugging Face: the same with a statement an operator.
Tape bert_layer(const Model& m, const Shape& shape) {
  Operators ops(m, shape, width_bytes(m, shape));
  Tape& tape = ops.tape();
  const Value x = tape.input();
  const double width = ops.width();
  const double inner = static_cast<double>(m.intermediate_size);
  const auto statement = [&](Value value) {
    tape.end_statement();
    return value;
  };
  const auto drop = [&](Value value) {
    return statement(
        ops.dropout(value, ops.tokens() * width, m.hidden_dropout));
  };
  const Value query = statement(ops.linear(x, width, width));
  const Value key = statement(ops.linear(x, width, width));
  const Value value = statement(ops.linear(x, width, width));
  const Value attended = statement(ops.attend(query, key, value));
  const Value dense = drop(statement(ops.linear(attended, width, width)));
  const Value middle = statement(ops.layer_norm(ops.add(dense, x)));
  const Value wide = statement(ops.linear(middle, width, inner));
  const Value active = statement(ops.activate(wide));
  const Value narrow = drop(statement(ops.linear(active, inner, width)));
  ops.layer_norm(ops.add(narrow, middle));
  return std::move(tape);
}

// GPT2Block of Hugging Face: norms before each half.
Tape gpt2_layer(const Model& m, const Shape& shape) {
  Operators ops(m, shape, width_bytes(m, shape));
  Tape& tape = ops.tape();
  const Value x = tape.input();
  const double width = ops.width();
  const double inner = static_cast<double>(m.intermediate_size);
  const auto statement = [&](Value value) {
    tape.end_statement();
    return value;
  };
  const auto drop = [&](Value value) {
    return statement(
        ops.dropout(value, ops.tokens() * width, m.hidden_dropout));
  };
  const Value normed = statement(ops.layer_norm(x));
  // One product of three times the width in truth.
  const Value query = ops.linear(normed, width, width);
  const Value key = ops.linear(normed, width, width);
  const Value value = statement(ops.linear(normed, width, width));
  const Value attended = statement(ops.attend(query, key, value));
  const Value dense = drop(statement(ops.linear(attended, width, width)));
  const Value middle = statement(ops.add(dense, x));
  const Value again = statement(ops.layer_norm(middle));
  const Value wide = statement(ops.linear(again, width, inner));
  const Value active = statement(ops.activate(wide));
  const Value narrow = drop(statement(ops.linear(active, inner, width)));
  ops.add(middle, narrow);
  return std::move(tape);
}

}  // namespace

SeenBlocks seen_blocks(const Model& model, const Shape& shape) {
  SeenBlocks seen;
  seen.block_size = shape.is_sparse ? model.block_size : kDenseBlock;
  const int64_t blocks = (shape.length + seen.block_size - 1) / seen.block_size;
  if (!shape.is_sparse || blocks < 4) {
    seen.full_rows = blocks;
    return seen;
  }
  seen.full_rows = 2;
  seen.sparse_rows = blocks - 2;
  // The second row's neighbour on the left is the first block, and so at the
  // other end.
  seen.seen_by_sparse = seen.sparse_rows * (5 + model.random_blocks) - 2;
  return seen;
}

Tape layer_tape(const Model& model, const Shape& shape) {
  switch (model.family) {
    case Family::kBigBird:
      return bigbird_layer(model, shape);
    case Family::kBert:
      return bert_layer(model, shape);
    case Family::kGpt2:
      break;
  }
  return gpt2_layer(model, shape);
}

Tape embeddings_tape(const Model& model, const Shape& shape) {
  constexpr int64_t kIndex = 8;
  Operators ops(model, shape, kIndex * shape.tokens());
  Tape& tape = ops.tape();
  const double width = ops.width();
  const auto drop = [&](Value value) {
    return ops.dropout(value, ops.tokens() * width, model.hidden_dropout);
  };
  Value x = ops.embedding("words", ops.tokens());
  tape.end_statement();
  if (model.family == Family::kGpt2) {
    const Value positions =
        ops.embedding("positions", static_cast<double>(shape.length));
    x = ops.add(x, positions);
    tape.end_statement();
    drop(x);
    return std::move(tape);
  }
  x = ops.add(x, ops.embedding("types", ops.tokens()));
  tape.end_statement();
  const Value positions =
      ops.embedding("positions", static_cast<double>(shape.length));
  x = ops.add(x, positions);
  tape.end_statement();
  if (model.family == Family::kBigBird) {
    ops.layer_norm(drop(x));
  } else {
    drop(ops.layer_norm(x));
  }
  return std::move(tape);
}

HeadCost head_cost(const Model& model, const Shape& shape) {
  const double number = static_cast<double>(bytes_of(shape.dtype));
  const double tokens = static_cast<double>(shape.tokens());
  const double texts = static_cast<double>(shape.batch);
  const double width = static_cast<double>(model.hidden_size);
  const double vocabulary = static_cast<double>(model.vocab_size);
  const double labels = static_cast<double>(model.labels);
  const bool is_gpt2 = model.family == Family::kGpt2;
  HeadCost cost;
  double numbers = 0;  // in memory at once
  if (is_gpt2) {
    // The last norm: its output and the gradient of that.
    numbers += 2 * tokens * width;
    cost.moved_bytes += number * 5 * tokens * width;
  }
  if (model.head == Head::kLanguageModel) {
    const double logits = tokens * vocabulary;
    cost.flops += 6 * logits * width;
    cost.moved_bytes += number * 3 * (tokens + vocabulary) * width;
    // Logits, their logarithm, and the gradients of both.
    numbers += 4 * logits;
    cost.moved_bytes += number * 9 * logits;
    if (!is_gpt2) {
      // A projection, its activation and norm before it.
      numbers += 3 * tokens * width;
      cost.flops += 6 * tokens * width * width;
      cost.moved_bytes += number * 15 * tokens * width;
    }
  } else if (model.head == Head::kClassification && is_gpt2) {
    numbers += 2 * tokens * labels;
    cost.flops += 6 * tokens * width * labels;
    cost.moved_bytes += number * 3 * tokens * labels;
  } else if (!is_gpt2) {
    // One token of each text goes through one projection.
    numbers += texts * (6 * width + 4 * labels);
    cost.flops += 6 * texts * width * (width + labels);
    cost.moved_bytes += number * 3 * width * (width + labels);
  }
  cost.workspace_bytes = checked_bytes(number * numbers);
  return cost;
}

}  // namespace remat::estimate
