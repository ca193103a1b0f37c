// Random programs of nested regions and recorded graphs: gradients equal those
// of the plain run, and the number of recomputations is what nesting says.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "remat/base/philox.h"
#include "remat/runtime/checkpoint.h"
#include "remat/runtime/checkpoint_graph.h"
#include "remat/runtime/dropout.h"

namespace remat {
namespace {

// A tree: a leaf is one operation, an inner node runs its children in a row or
// as branches that meet, as one region, one recorded graph or plainly.
enum class Wrap { kNone, kRegion, kGraph };

struct Program {
  int operation = 0;
  Wrap wrap = Wrap::kNone;
  bool branches = false;
  bool early_stop = true;
  int policy = 0;
  DeterminismCheck check = DeterminismCheck::kMetadata;
  std::vector<Program> children;
};

// "graph policy 1 (op 7, region branches (op 2, op 3))", for what is found.
std::string text_of(const Program& program) {
  if (program.children.empty()) {
    return "op " + std::to_string(program.operation);
  }
  std::string text = program.wrap == Wrap::kNone     ? "plain"
                     : program.wrap == Wrap::kRegion ? "region"
                                                     : "graph";
  text += program.branches ? " branches" : "";
  text += program.early_stop ? "" : " whole";
  text += " policy " + std::to_string(program.policy) + " (";
  for (const Program& child : program.children) {
    text += text_of(child) + (&child == &program.children.back() ? ")" : ", ");
  }
  return text;
}

Program draw_program(int depth) {
  Program program;
  program.operation = *rc::gen::inRange(0, 10);
  if (depth > 0) {
    program.wrap = *rc::gen::weightedElement<Wrap>(
        {{4, Wrap::kNone}, {4, Wrap::kRegion}, {3, Wrap::kGraph}});
    program.branches = *rc::gen::weightedElement<bool>({{3, false}, {1, true}});
    program.early_stop = *rc::gen::arbitrary<bool>();
    program.policy = *rc::gen::inRange(0, 6);
    program.check =
        *rc::gen::element(DeterminismCheck::kMetadata,
                          DeterminismCheck::kValues, DeterminismCheck::kNone);
    const int children = *rc::gen::inRange(0, 4);
    for (int i = 0; i < children; ++i) {
      program.children.push_back(draw_program(depth - 1));
    }
  }
  return program;
}

struct Runner {
  at::Tensor weight;
  at::Tensor running_mean;  // what batch normalization keeps
  bool use_regions;
  int64_t operations = 0;
  int64_t recomputed_operations = 0;

  at::Tensor operation(int which, const at::Tensor& x) {
    ++operations;
    recomputed_operations += is_recomputing() ? 1 : 0;
    switch (which) {
      case 0:
        return at::mm(x, weight).tanh();
      case 1:
        return x.sin() + x;
      case 2:
        return Dropout(0.3)(x).exp().clamp_max(2.0);
      case 3:
        return at::dropout(x, 0.5, true) + x.cos();
      case 4:
        return x.t().contiguous().t().sigmoid();
      case 5: {
        // Views and a change in place of a value that nobody saved.
        at::Tensor y = x * 1.5;
        y.narrow(0, 0, 1).add_(x.narrow(0, 1, 1));
        return y.sin();
      }
      case 6:
        return at::softmax(x, 1) * x.detach();
      case 7: {
        const at::Tensor mean = x.detach().mean(0);
        running_mean.mul_(0.9).add_(mean, 0.1);
        return x.sin() - running_mean.sum();
      }
      case 8: {
        // A result that is changed in place after it was computed.
        at::Tensor y = keep("product", at::mm(x, weight));
        return y.add_(0.25).sigmoid() + x;
      }
      default:
        return at::layer_norm(x, {x.size(1)}) * weight.select(0, 0);
    }
  }

  static Policy policy_of(const Program& program) {
    switch (program.policy) {
      case 0:
        return policy::matmuls();
      case 1:
        return policy::everything();
      case 2:
        return policy::names({"product"});
      default:
        return policy::nothing();
    }
  }

  CheckpointOptions options_of(const Program& program) const {
    CheckpointOptions options;
    options.buffers({running_mean})
        .early_stop(program.early_stop)
        .determinism_check(program.check);
    if (program.policy < 3) {
      options.policy(policy_of(program));
    }
    return options;
  }

  at::Tensor run(const Program& program, const at::Tensor& x) {
    if (program.children.empty()) {
      return operation(program.operation, x);
    }
    const auto body = [this, &program](const at::Tensor& input) {
      at::Tensor y = input;
      for (const Program& child : program.children) {
        y = program.branches ? y + run(child, input) : run(child, y);
      }
      return y;
    };
    if (!use_regions || program.wrap == Wrap::kNone) {
      return body(x);
    }
    return program.wrap == Wrap::kRegion
               ? checkpoint(options_of(program), body, x)
               : checkpoint_graph(policy_of(program), body, x);
  }
};

RC_GTEST_PROP(RandomRegions, GradientsEqualThePlainRunToTheBit, ()) {
  const Program program = draw_program(4);
  RC_LOG() << text_of(program) << '\n';
  const int backwards = *rc::gen::inRange(1, 3);
  const auto seed = *rc::gen::inRange<uint64_t>(0, 1 << 20);
  at::manual_seed(seed);
  const at::Tensor x = at::randn({3, 4}, at::kDouble).requires_grad_();
  const at::Tensor weight = at::randn({4, 4}, at::kDouble).requires_grad_();
  // The last backward of the last mode frees the graph, as training does.
  enum class Mode { kPlain, kRegions, kRegionsFreed };
  std::vector<std::vector<at::Tensor>> results;
  std::vector<int64_t> recomputed_operations;
  for (const Mode mode : {Mode::kPlain, Mode::kRegions, Mode::kRegionsFreed}) {
    at::manual_seed(seed + 1);
    Runner runner{weight, at::zeros({4}, at::kDouble), mode != Mode::kPlain};
    const at::Tensor out = runner.run(program, x);
    results.push_back({out});
    const int64_t forward_operations = runner.operations;
    for (int i = 0; i < backwards; ++i) {
      const bool keep_graph = mode != Mode::kRegionsFreed || i + 1 < backwards;
      const auto gradients =
          torch::autograd::grad({out.sum(), out.pow(2).sum()}, {x, weight}, {},
                                keep_graph, false, /*allow_unused=*/true);
      for (const at::Tensor& gradient : gradients) {
        results.back().push_back(gradient.defined() ? gradient
                                                    : at::zeros({1}));
      }
    }
    results.back().push_back(runner.running_mean);
    results.back().push_back(at::rand({4}));
    RC_ASSERT(mode != Mode::kPlain || runner.operations == forward_operations);
    RC_ASSERT(runner.recomputed_operations ==
              runner.operations - forward_operations);
    recomputed_operations.push_back(runner.recomputed_operations);
  }
  RC_ASSERT(recomputed_operations[1] == recomputed_operations[2]);
  for (size_t i = 0; i < results[0].size(); ++i) {
    RC_ASSERT(at::equal(results[0][i], results[1][i]));
    RC_ASSERT(at::equal(results[0][i], results[2][i]));
  }
}

// A nest of `depth` regions of one operation each: region k is run again for
// its own backward and for that of every region around it.
RC_GTEST_PROP(RandomRegions, NestsRecomputeEachLevelOnceALevel, ()) {
  const int depth = *rc::gen::inRange(1, 7);
  const at::Tensor x = at::ones({2}, at::kDouble).requires_grad_();
  std::vector<int> runs(static_cast<size_t>(depth), 0);
  const std::function<at::Tensor(const at::Tensor&, int)> nest =
      [&](const at::Tensor& t, int level) -> at::Tensor {
    if (level == depth) {
      return t;
    }
    return checkpoint(
        [&nest, &runs](const at::Tensor& u, int here) {
          ++runs[static_cast<size_t>(here)];
          return nest(u.sin(), here + 1).exp();
        },
        t, level);
  };
  torch::autograd::grad({nest(x, 0).sum()}, {x});
  for (int level = 0; level < depth; ++level) {
    RC_ASSERT(runs[static_cast<size_t>(level)] <= level + 2);
    RC_ASSERT(runs[static_cast<size_t>(level)] >= 2);
  }
}

}  // namespace
}  // namespace remat
