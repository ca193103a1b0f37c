#include "remat/estimate/tape.h"

#include <gtest/gtest.h>

namespace remat::estimate {
namespace {

using Value = Tape::Value;

Tape::Operator op(std::vector<Value> inputs, int64_t bytes,
                  std::vector<Value> saves) {
  Tape::Operator result;
  result.inputs = std::move(inputs);
  result.output_bytes = bytes;
  result.saves = std::move(saves);
  return result;
}

// linear (8 -> 10), relu, linear (10 -> 5).
Tape two_layers(bool apart) {
  Tape tape(8);
  const Value first = tape.add(op({tape.input()}, 10, {tape.input()}));
  if (apart) tape.end_statement();
  const Value active = tape.add(op({first}, 10, {Tape::kOutput}));
  if (apart) tape.end_statement();
  tape.add(op({active}, 5, {active}));
  return tape;
}

TEST(Tape, SavedIsWhatBackwardReadsAndTheOutput) {
  for (const bool apart : {false, true}) {
    // relu's output, once, and the last one; the input is somebody else's.
    EXPECT_EQ(two_layers(apart).memory().saved_bytes, 15);
  }
}

TEST(Tape, TemporaryValuesLiveToTheEndOfTheirStatement) {
  // All three at once, or two.
  EXPECT_EQ(two_layers(false).memory().forward_workspace_bytes, 25 - 15);
  EXPECT_EQ(two_layers(true).memory().forward_workspace_bytes, 20 - 15);
  // Held as long as the caller holds them.
  Tape tape(8);
  const Value first = tape.add(op({tape.input()}, 10, {}));
  tape.end_statement();
  const Value second = tape.add(op({first}, 10, {}));
  tape.end_statement();
  tape.hold({first});
  tape.add(op({second}, 5, {}));
  EXPECT_EQ(tape.memory().forward_workspace_bytes, 25 - 5);
}

TEST(Tape, BackwardReleasesWhatItHasUsed) {
  // At relu: saved 15 and gradients of both its sides; the last gradient is
  // gone. Beyond saved state, and gradients of 5 and 8 bytes: 7.
  EXPECT_EQ(two_layers(true).memory().backward_workspace_bytes,
            15 + 10 + 10 - (15 + 5 + 8));
}

TEST(Tape, AResidualSharesItsGradient) {
  Tape tape(10);
  const Value branch = tape.add(op({tape.input()}, 10, {tape.input()}));
  Tape::Operator add = op({branch, tape.input()}, 10, {});
  add.passes_gradient = true;
  tape.add(add);
  const Tape::Memory memory = tape.memory();
  EXPECT_EQ(memory.saved_bytes, 10);
  EXPECT_EQ(memory.forward_workspace_bytes, 10);
  EXPECT_EQ(memory.backward_workspace_bytes, 0);
}

TEST(Tape, ScratchAndWhatIsSavedBeside) {
  Tape tape(1);
  Tape::Operator norm = op({tape.input()}, 10, {tape.input()});
  norm.saved_beside_bytes = 3;
  norm.forward_scratch_bytes = 100;
  norm.backward_scratch_bytes = 50;
  tape.add(norm);
  const Tape::Memory memory = tape.memory();
  EXPECT_EQ(memory.saved_bytes, 13);
  EXPECT_EQ(memory.forward_workspace_bytes, 100);
  EXPECT_EQ(memory.backward_workspace_bytes, 50);
}

TEST(Tape, EachOperatorTakesTheLongerOfComputingAndMoving) {
  Tape tape(1);
  Tape::Operator product = op({tape.input()}, 1, {});
  product.flops = 100;
  product.backward_flops = 200;
  product.moved_bytes = 30;
  product.backward_moved_bytes = 60;
  const Value value = tape.add(product);
  Tape::Operator pass = op({value}, 1, {});
  pass.moved_bytes = 40;
  pass.backward_moved_bytes = 90;
  tape.add(pass);
  const Tape::Rates rates{.flops_per_second = 10, .bytes_per_second = 5};
  EXPECT_DOUBLE_EQ(tape.forward_seconds(rates), 10 + 8);
  EXPECT_DOUBLE_EQ(tape.backward_seconds(rates), 20 + 18);
}

}  // namespace
}  // namespace remat::estimate
