// The operators of transformers on a tape, by what their backward keeps.
//
// For the sources of remat/estimate.
#pragma once

#include <cstdint>
#include <string>

#include "remat/estimate/model.h"
#include "remat/estimate/stages.h"
#include "remat/estimate/tape.h"

namespace remat::estimate {

class Operators {
 public:
  using Value = Tape::Value;

  Operators(const Model& model, const Shape& shape, int64_t input_bytes);

  Tape& tape() { return tape_; }

  // Numbers (of the shape's dtype) as bytes; throws UsageError beyond 2^56.
  int64_t bytes(double numbers) const;
  double tokens() const { return static_cast<double>(shape_.tokens()); }
  double width() const { return static_cast<double>(model_.hidden_size); }

  // [tokens, inputs] -> [tokens, outputs]. The weights are fixed memory.
  Value linear(Value x, double inputs, double outputs);
  // Keeps its input and two float32 numbers a token.
  Value layer_norm(Value x);
  // Adds values of the stage's width.
  Value add(Value x, Value y);
  // remat's keeps nothing, Hugging Face's a byte for each number.
  Value dropout(Value x, double numbers, double probability);
  // In one operator, or, as Hugging Face writes gelu_new, in eight.
  Value activate(Value x);
  // Between the projections, by the shape's kind. The caller holds the three.
  Value attend(Value query, Value key, Value value);
  // The words, positions and types of tokens; no gradient goes further back.
  Value embedding(const std::string& name, double tokens);

 private:
  // Matrix products of attention; keeps both factors.
  Value product(const std::string& name, Value x, Value y, double output_bytes,
                double flops, double input_bytes);
  // Reads `reads` tensors of the size and writes one.
  Value pass(const std::string& name, std::vector<Value> inputs, double bytes,
             std::vector<Value> saves = {}, bool passes_gradient = false);
  Value gelu_in_eight(Value x, double bytes);
  Value attend_fused(Value query, Value key, Value value);
  Value attend_with_probabilities(Value query, Value key, Value value);
  Value attend_gathered(Value query, Value key, Value value);
  Value gather_group(Value query, Value key, Value value,
                     const SeenBlocks& seen, int64_t rows,
                     int64_t seen_by_rows);

  const Model& model_;
  Shape shape_;
  bool is_remat_;
  double number_;  // bytes
  Tape tape_;
};

// Throws UsageError beyond 2^56.
int64_t checked_bytes(double bytes);

}  // namespace remat::estimate
