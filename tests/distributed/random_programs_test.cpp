// Random programs of nested regions over shared weights: data parallel
// gradients with regions are those without, to the bit, on every rank.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>

#include "remat/runtime/checkpoint.h"
#include "remat/runtime/dropout.h"
#include "tests/distributed/ranks.h"
#include "tests/distributed/training.h"

namespace remat::distributed {
namespace {

constexpr size_t kWeights = 4;
constexpr int64_t kWidth = 4;

// A tree: a leaf is one operation, an inner node runs its children in a row, as
// a region or plainly.
struct Node {
  int operation = 0;
  size_t weight = 0;
  bool region = false;
  bool early_stop = true;
  std::vector<Node> children;
};

class Drawing {
 public:
  explicit Drawing(unsigned seed) : engine_(seed) {}

  Node node(int depth) {
    Node node;
    node.operation = number(6);
    node.weight = static_cast<size_t>(number(kWeights));
    if (depth > 0) {
      node.region = number(3) > 0;
      node.early_stop = number(2) > 0;
      const int children = 1 + number(3);
      for (int i = 0; i < children; ++i) {
        node.children.push_back(this->node(depth - 1));
      }
    }
    return node;
  }

 private:
  // Not a distribution: those differ between standard libraries.
  int number(unsigned below) { return static_cast<int>(engine_() % below); }

  std::mt19937 engine_;
};

at::Tensor operation(const Node& node, const Weights& weights,
                     const at::Tensor& x) {
  const at::Tensor& w = weights[node.weight];
  switch (node.operation) {
    case 0:
    case 1:
      return layer(w, x);
    case 2:
      return at::dropout(x, 0.3, true) * w.select(0, 1) + x;
    case 3:
      return Dropout(0.2)(at::mm(x, w)).sin() + x;
    case 4:
      return x.cos() * 0.5;
    default:
      return at::layer_norm(x, {kWidth}, w.select(0, 0), w.select(0, 2));
  }
}

at::Tensor run(const Node& node, const Program::Call& call,
               const at::Tensor& x) {
  if (node.children.empty()) {
    return operation(node, call.weights, x);
  }
  const auto body = [&node, call](const at::Tensor& input) {
    at::Tensor y = input;
    for (const Node& child : node.children) {
      y = run(child, call, y);
    }
    return y;
  };
  return call.regions && node.region
             ? checkpoint(CheckpointOptions().early_stop(node.early_stop), body,
                          x)
             : body(x);
}

Program program_of(const Node& node, bool uses_all) {
  Program program;
  program.shapes.assign(kWeights, {kWidth, kWidth});
  program.steps = 3;
  program.uses_all = uses_all;
  program.loss = [node, uses_all](const Program::Call& call) {
    const at::Tensor x = input_of(call.rank, call.step, {3, kWidth});
    // Some weight, so that there is a gradient.
    at::Tensor loss = run(node, call, layer(call.weights[0], x)).pow(2).mean();
    if (uses_all) {
      for (const at::Tensor& weight : call.weights) {
        loss = loss + weight.sin().sum() * 0.01;
      }
    }
    return loss;
  };
  return program;
}

TEST(DataParallelRandomPrograms, GradientsEqualThePlainOnesToTheBit) {
  on_ranks([](ProcessGroup& group) {
    for (unsigned seed = 0; seed < 60 && !testing::Test::HasFailure(); ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      DataParallelOptions options;
      if (seed % 2 == 0) {
        options.bucket_bytes = options.first_bucket_bytes =
            100 + static_cast<int64_t>(seed);
      }
      // Every third: another program on each rank, which leaves other
      // parameters unused.
      const unsigned kind = seed % 3;
      options.find_unused_parameters = kind == 0;
      options.static_graph = kind == 1;
      const unsigned of_rank =
          kind == 0 ? static_cast<unsigned>(group.rank()) : 0;
      const Node node = Drawing(seed * 2 + of_rank).node(3);
      // A rank that fails alone must not leave the others waiting: they end
      // when its process does.
      expect_regions_change_nothing(group, program_of(node, kind == 2),
                                    options);
    }
  });
}

}  // namespace
}  // namespace remat::distributed
