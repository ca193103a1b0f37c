#include "remat/estimate/operators.h"

#include <utility>

#include "remat/base/error.h"

namespace remat::estimate {
namespace {

constexpr double kMaxTensor = 72057594037927936.0;  // 2^56

// Of mean and deviation, maximum and sum.
constexpr double kStatistic = 4;

}  // namespace

int64_t checked_bytes(double bytes) {
  if (!(bytes <= kMaxTensor)) {
    fail_usage("plan", "a tensor of the model would have ", bytes,
               " bytes, more than 2^56; use shorter texts, fewer of them, or "
               "an attention that does not keep its probabilities");
  }
  return static_cast<int64_t>(bytes);
}

Operators::Operators(const Model& model, const Shape& shape,
                     int64_t input_bytes)
    : model_(model),
      shape_(shape),
      is_remat_(model.family == Family::kBigBird),
      number_(static_cast<double>(bytes_of(shape.dtype))),
      tape_(input_bytes) {}

int64_t Operators::bytes(double numbers) const {
  return checked_bytes(numbers * number_);
}

Operators::Value Operators::pass(const std::string& name,
                                 std::vector<Value> inputs, double bytes,
                                 std::vector<Value> saves,
                                 bool passes_gradient) {
  const double reads = static_cast<double>(inputs.size());
  const double saved = static_cast<double>(saves.size());
  Tape::Operator op;
  op.name = name;
  op.inputs = std::move(inputs);
  op.output_bytes = checked_bytes(bytes);
  op.saves = std::move(saves);
  op.passes_gradient = passes_gradient;
  op.moved_bytes = (reads + 1) * bytes;
  // The gradient and what was saved are read, one gradient an input written.
  op.backward_moved_bytes = passes_gradient ? 0 : (1 + saved + reads) * bytes;
  return tape_.add(std::move(op));
}

Operators::Value Operators::linear(Value x, double inputs, double outputs) {
  const double weights = inputs * outputs;
  Tape::Operator op;
  op.name = "linear";
  op.inputs = {x};
  op.output_bytes = bytes(tokens() * outputs);
  op.saves = {x};
  op.flops = 2 * tokens() * weights;
  op.backward_flops = 2 * op.flops;
  op.moved_bytes = number_ * (tokens() * (inputs + outputs) + weights);
  op.backward_moved_bytes = 2 * op.moved_bytes;
  return tape_.add(std::move(op));
}

Operators::Value Operators::layer_norm(Value x) {
  const double size = number_ * tokens() * width();
  Tape::Operator op;
  op.name = "layer_norm";
  op.inputs = {x};
  op.output_bytes = checked_bytes(size);
  op.saves = {x};
  op.saved_beside_bytes = checked_bytes(2 * kStatistic * tokens());
  op.moved_bytes = 2 * size;
  op.backward_moved_bytes = 3 * size;
  return tape_.add(std::move(op));
}

Operators::Value Operators::add(Value x, Value y) {
  return pass("add", {x, y}, number_ * tokens() * width(), {},
              /*passes_gradient=*/true);
}

Operators::Value Operators::dropout(Value x, double numbers,
                                    double probability) {
  if (probability == 0) {
    return x;
  }
  const double size = number_ * numbers;
  Tape::Operator op;
  op.name = "dropout";
  op.inputs = {x};
  op.output_bytes = checked_bytes(size);
  const double mask = is_remat_ ? 0 : numbers;
  op.saved_beside_bytes = checked_bytes(mask);
  op.moved_bytes = 2 * size + mask;
  op.backward_moved_bytes = 2 * size + mask;
  return tape_.add(std::move(op));
}

Operators::Value Operators::embedding(const std::string& name, double tokens) {
  const double size = number_ * tokens * width();
  Tape::Operator op;
  op.name = name;
  op.output_bytes = checked_bytes(size);
  op.moved_bytes = 2 * size;
  op.backward_moved_bytes = 2 * size;
  return tape_.add(std::move(op));
}

Operators::Value Operators::gelu_in_eight(Value x, double bytes) {
  const Value cube = pass("pow", {x}, bytes, {x});
  const Value scaled = pass("mul", {cube}, bytes);
  const Value sum =
      pass("add", {x, scaled}, bytes, {}, /*passes_gradient=*/true);
  const Value inner = pass("mul", {sum}, bytes);
  const Value tanh = pass("tanh", {inner}, bytes, {Tape::kOutput});
  const Value shifted =
      pass("add", {tanh}, bytes, {}, /*passes_gradient=*/true);
  const Value half = pass("mul", {x}, bytes);
  return pass("mul", {half, shifted}, bytes, {half, shifted});
}

Operators::Value Operators::activate(Value x) {
  const double size =
      number_ * tokens() * static_cast<double>(model_.intermediate_size);
  const std::string& name = model_.activation;
  if (!is_remat_ && (name == "gelu_new" || name == "gelu_fast")) {
    return gelu_in_eight(x, size);
  }
  const bool keeps_output = name == "relu" || name == "tanh";
  return pass(name, {x}, size, {keeps_output ? Tape::kOutput : x});
}

Operators::Value Operators::product(const std::string& name, Value x, Value y,
                                    double output_bytes, double flops,
                                    double input_bytes) {
  Tape::Operator op;
  op.name = name;
  op.inputs = {x, y};
  op.output_bytes = checked_bytes(output_bytes);
  op.saves = {x, y};
  op.flops = flops;
  op.backward_flops = 2 * flops;
  op.moved_bytes = input_bytes + output_bytes;
  op.backward_moved_bytes = 2 * op.moved_bytes;
  return tape_.add(std::move(op));
}

Operators::Value Operators::attend(Value query, Value key, Value value) {
  switch (shape_.attention) {
    case AttentionKind::kFused:
      return attend_fused(query, key, value);
    case AttentionKind::kProbabilities:
      return attend_with_probabilities(query, key, value);
    case AttentionKind::kGathered:
      break;
  }
  return attend_gathered(query, key, value);
}

Operators::Value Operators::attend_fused(Value query, Value key, Value value) {
  const double length = static_cast<double>(shape_.length);
  const double block = static_cast<double>(model_.block_size);
  double pairs = length * length;  // a head's queries and keys
  if (shape_.is_sparse) {
    pairs = static_cast<double>(seen_blocks(model_, shape_).total()) * block *
            block;
  } else if (model_.family == Family::kGpt2) {
    pairs /= 2;  // causal
  }
  const double size = number_ * tokens() * width();
  Tape::Operator op;
  op.name = "fused attention";
  op.inputs = {query, key, value};
  op.output_bytes = checked_bytes(size);
  op.saves = {query, key, value, Tape::kOutput};
  // remat's keeps maximum and sum, others their logarithm together.
  op.saved_beside_bytes =
      checked_bytes((is_remat_ ? 2 : 1) * kStatistic * tokens() *
                    static_cast<double>(model_.attention_heads));
  // Two products forward; five backward, the scores once more.
  op.flops = 4 * pairs * width() * static_cast<double>(shape_.batch);
  op.backward_flops = 2.5 * op.flops;
  op.moved_bytes = 4 * size;
  op.backward_moved_bytes = 8 * size;
  return tape_.add(std::move(op));
}

Operators::Value Operators::attend_with_probabilities(Value query, Value key,
                                                      Value value) {
  const double length = static_cast<double>(shape_.length);
  const double scores = static_cast<double>(shape_.batch) *
                        static_cast<double>(model_.attention_heads) * length *
                        length;
  const double matrix = number_ * scores;
  const double flops = 2 * scores * static_cast<double>(model_.head_size());
  const double size = number_ * tokens() * width();
  Value x = product("matmul", query, key, matrix, flops, 2 * size);
  x = pass("scale", {x}, matrix);
  x = pass("add mask", {x}, matrix, {}, /*passes_gradient=*/true);
  tape_.end_statement();
  x = pass("softmax", {x}, matrix, {Tape::kOutput});
  x = dropout(x, scores, model_.attention_dropout);
  tape_.end_statement();
  x = product("matmul", x, value, size, flops, matrix + size);
  return pass("contiguous", {x}, size);
}

// remat's block_sparse_attention_aten.
Operators::Value Operators::attend_gathered(Value query, Value key,
                                            Value value) {
  const double number = shape_.attends_in_float ? 4 : number_;
  const double size = number * tokens() * width();
  const SeenBlocks seen = seen_blocks(model_, shape_);
  const auto cut = [&](Value x) {
    if (number != number_) {
      x = pass("to float", {x}, size);
    }
    return pass("cut", {pass("pad", {x}, size)}, size);
  };
  const Value queries = cut(query);
  const Value keys = cut(key);
  const Value values = cut(value);
  tape_.end_statement();
  // Query blocks with equally long lists go together.
  Value output = gather_group(queries, keys, values, seen, seen.full_rows,
                              seen.seen_by_full());
  if (seen.sparse_rows > 0) {
    const Value others = gather_group(queries, keys, values, seen,
                                      seen.sparse_rows, seen.seen_by_sparse);
    output = pass("cat", {output, others}, size);
  }
  output = pass("index_select", {output}, size);
  output = pass("contiguous", {output}, size);
  tape_.end_statement();
  output = pass("query scale", {output}, size);
  tape_.hold({query, key, value});
  if (number != number_) {
    output = pass("from float", {output}, number_ * tokens() * width());
  }
  return output;
}

Operators::Value Operators::gather_group(Value query, Value key, Value value,
                                         const SeenBlocks& seen, int64_t rows,
                                         int64_t seen_by_rows) {
  const double number = shape_.attends_in_float ? 4 : number_;
  const double block = static_cast<double>(seen.block_size);
  const double query_blocks = static_cast<double>(rows);
  const double key_blocks = static_cast<double>(seen_by_rows);
  // A block of all heads and texts has these numbers.
  const double per_block = static_cast<double>(shape_.batch) * block * width();
  const double pairs = static_cast<double>(shape_.batch) *
                       static_cast<double>(model_.attention_heads) *
                       key_blocks * block * block;
  const double flops = 2 * pairs * static_cast<double>(model_.head_size());
  const double gathered = number * key_blocks * per_block;
  const double some = number * query_blocks * per_block;
  constexpr double kFloat = 4;  // scores are computed in float32
  // Gradients of gathered blocks are added to a zeroed tensor of all.
  const Value queries = pass("index_select", {query}, some);
  const Value keys = pass("index_select", {key}, gathered);
  Value x =
      product("matmul", queries, keys, number * pairs, flops, some + gathered);
  if (number != kFloat) {
    x = pass("to float", {x}, kFloat * pairs);
  }
  x = pass("scale", {x}, kFloat * pairs);
  x = pass("add bias", {x}, kFloat * pairs, {}, /*passes_gradient=*/true);
  tape_.end_statement();
  x = pass("softmax", {x}, kFloat * pairs, {Tape::kOutput});
  if (number != kFloat) {
    x = pass("from float", {x}, number * pairs);
  }
  tape_.end_statement();
  const Value values = pass("index_select", {value}, gathered);
  x = product("matmul", x, values, some, flops, number * pairs + gathered);
  tape_.end_statement();
  return x;
}

}  // namespace remat::estimate
