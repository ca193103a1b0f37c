// Recorded graphs: what is computed again, how often, and in which memory.
#include "remat/runtime/checkpoint_graph.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <thread>

#include "remat/base/error.h"
#include "remat/memory/meter.h"
#include "remat/runtime/recompute_group.h"
#include "remat/runtime/saved_tensor_hooks.h"
#include "tests/runtime/graph_helpers.h"
#include "tests/runtime/helpers.h"

namespace remat {
namespace {

using torch::autograd::grad;

// Eight steps; the one after every fourth is named.
at::Tensor steps(at::Tensor x) {
  for (int i = 1; i <= 8; ++i) {
    x = x.tanh();
    if (i % 4 == 0) {
      keep("node", x);
    }
  }
  return x;
}

TEST(CheckpointGraph, ComputesEachOperatorOnceABackward) {
  const at::Tensor x = input();
  for (const Policy& policy :
       {policy::nothing(), policy::names({"node"}), policy::everything()}) {
    const at::Tensor out = checkpoint_graph(policy, steps, x).sum();
    const auto expected = grad({steps(x).sum()}, {x})[0];
    for (int backward = 0; backward < 2; ++backward) {
      const OperatorCount count;
      EXPECT_TRUE(at::equal(grad({out}, {x}, {}, true)[0], expected));
      const int held = policy.keeps ? 8 : policy.names.empty() ? 0 : 2;
      EXPECT_EQ(count.of("aten::tanh"), 8 - held);
    }
  }
}

// The values of one part at a time, and those that are held.
TEST(CheckpointGraph, HoldsNamedNodesAndOnePart) {
  constexpr int64_t kMiB = 1 << 20;
  const at::Tensor x = at::full({kMiB / 4}, 0.5f).requires_grad_();
  const auto chain = [](at::Tensor t) {
    for (int i = 1; i <= 16; ++i) {
      t = t.tanh();
      if (i % 4 == 0) {
        keep("node", t);
      }
    }
    return t;
  };
  const auto peak = [&](const Policy& policy) {
    const MemoryMeter meter;
    const at::Tensor out = checkpoint_graph(policy, chain, x).sum();
    const int64_t after_forward = meter.live_bytes();
    grad({out}, {x});
    return std::pair(after_forward, meter.peak_bytes());
  };
  const auto [held_nodes, peak_nodes] = peak(policy::names({"node"}));
  const auto [held_nothing, peak_nothing] = peak(policy::nothing());
  EXPECT_NEAR(static_cast<double>(held_nodes), 4 * kMiB, kMiB / 16);
  EXPECT_LT(held_nothing, kMiB / 16);
  // Gradients: one in, one out, and the expanded sum's.
  EXPECT_LE(peak_nodes, (4 + 3 + 3) * kMiB);
  EXPECT_GE(peak_nothing, 15 * kMiB);
}

TEST(CheckpointGraph, HeldNodesGoWithTheirPart) {
  constexpr int64_t kMiB = 1 << 20;
  const at::Tensor x = at::full({kMiB / 4}, 0.5f).requires_grad_();
  const MemoryMeter meter;
  std::vector<int64_t> live;
  const at::Tensor out = checkpoint_graph(
                             policy::names({"node"}),
                             [&](at::Tensor t) {
                               for (int i = 0; i < 8; ++i) {
                                 t = keep("node", t.tanh().sin());
                                 t.register_hook([&](const at::Tensor&) {
                                   live.push_back(meter.live_bytes());
                                 });
                               }
                               return t;
                             },
                             x)
                             .sum();
  grad({out}, {x});
  ASSERT_EQ(live.size(), 8u);
  EXPECT_LE(live[7], live[1] - 5 * kMiB);
}

TEST(CheckpointGraph, SpeedKeepsMatrixProducts) {
  const at::Tensor x = input();
  const at::Tensor w = input().detach().requires_grad_();
  const auto network = [&](const at::Tensor& t) {
    return at::mm(at::mm(t, w).tanh().sin(), w).sigmoid();
  };
  const at::Tensor out = checkpoint_graph(policy::matmuls(), network, x).sum();
  const auto expected = grad({network(x).sum()}, {x, w});
  const OperatorCount count;
  const auto got = grad({out}, {x, w});
  // Two products have two gradients each, and no product ran again.
  EXPECT_EQ(count.of("aten::mm"), 4);
  EXPECT_EQ(count.of("aten::tanh"), 1);
  EXPECT_TRUE(at::equal(expected[0], got[0]));
  EXPECT_TRUE(at::equal(expected[1], got[1]));
}

TEST(CheckpointGraph, AnyDagWithSkipsAndSharedWeights) {
  const at::Tensor x = input();
  const at::Tensor w = input().detach().requires_grad_();
  for (const Policy& policy : {policy::nothing(), policy::names({"a"})}) {
    expect_same_gradients(
        policy,
        [&] {
          const at::Tensor a = keep("a", at::mm(x, w).tanh());
          const at::Tensor b = (a * 0.5).exp();
          const at::Tensor c = at::cat({a, b.sin(), x}, 0);
          const auto halves = c.chunk(3, 0);
          return (at::mm(halves[0] + halves[2], w) * a).sigmoid() + b.cos();
        },
        {x, w});
  }
}

TEST(CheckpointGraph, TheFunctionNeedNotLiveOn) {
  const at::Tensor x = input();
  at::Tensor out;
  {
    auto factor = std::make_unique<double>(2.0);
    out = checkpoint_graph(
        policy::nothing(),
        [&](const at::Tensor& t) { return (t * *factor).sin().exp(); }, x);
  }
  EXPECT_TRUE(at::equal(grad({out.sum()}, {x})[0],
                        grad({(x * 2.0).sin().exp().sum()}, {x})[0]));
}

TEST(CheckpointGraph, DoubleBackwardAndViewsAndNumbers) {
  const at::Tensor x = input();
  const auto fn = [](const at::Tensor& t) {
    return (t.t().narrow(0, 1, 2) * 3.0).tanh().pow(2).select(1, 0) * 1.5;
  };
  std::vector<at::Tensor> second;
  for (const bool recorded : {false, true}) {
    const at::Tensor out =
        recorded ? checkpoint_graph(policy::nothing(), fn, x) : fn(x);
    const at::Tensor first = grad({out.sum()}, {x}, {}, true, true)[0];
    second.push_back(grad({first.pow(2).sum()}, {x})[0]);
  }
  EXPECT_TRUE(at::equal(second[0], second[1]));
}

TEST(CheckpointGraph, InRegionsAndAroundThem) {
  const at::Tensor x = input();
  const auto inner = [](const at::Tensor& t) { return t.sin().exp().tanh(); };
  const auto plain = grad({inner(inner(inner(x))).cos().sum()}, {x})[0];
  const auto graph = [&](const at::Tensor& t) {
    return checkpoint_graph(policy::nothing(), inner, t);
  };
  const auto region = [&](const at::Tensor& t) { return checkpoint(inner, t); };
  const at::Tensor inside = checkpoint(
      [&](const at::Tensor& t) { return graph(inner(graph(t))).cos(); }, x);
  EXPECT_TRUE(at::equal(grad({inside.sum()}, {x})[0], plain));
  const at::Tensor around = checkpoint_graph(
      policy::nothing(),
      [&](const at::Tensor& t) { return region(graph(inner(t))).cos(); }, x);
  EXPECT_TRUE(at::equal(grad({around.sum()}, {x})[0], plain));
}

// A held value of the graph is computed again by the region, once for all who
// need it.
TEST(CheckpointGraph, ARegionAroundRunsOnceABackward) {
  const at::Tensor x = input();
  int runs = 0;
  const auto graph = [](const at::Tensor& u) {
    return (at::softmax(u, 1) * u).sin() * u + u.exp().tanh() * u;
  };
  const at::Tensor out = checkpoint(
      [&](const at::Tensor& t) {
        ++runs;
        return checkpoint_graph(policy::nothing(), graph, t.sin());
      },
      x);
  const at::Tensor expected = grad({graph(x.sin()).sum()}, {x})[0];
  for (const bool retain : {true, true, false}) {
    const int before = runs;
    EXPECT_TRUE(at::equal(grad({out.sum()}, {x}, {}, retain)[0], expected));
    EXPECT_EQ(runs, before + 1);
  }
}

TEST(CheckpointGraph, HeldValuesPassTheHooksAround) {
  const at::Tensor x = input();
  int packed = 0, unpacked = 0;
  at::Tensor out;
  {
    const SavedTensorHooks hooks(
        [&](const at::Tensor& t) {
          ++packed;
          return t.clone();
        },
        [&](const at::Tensor& t) {
          ++unpacked;
          return t.clone();
        });
    out = checkpoint_graph(policy::names({"node"}), steps, x);
  }
  // The input and the two nodes.
  EXPECT_EQ(packed, 3);
  EXPECT_TRUE(
      at::equal(grad({out.sum()}, {x})[0], grad({steps(x).sum()}, {x})[0]));
  EXPECT_GE(unpacked, 3);
}

TEST(CheckpointGraph, BackwardInsideAndErrors) {
  const at::Tensor x = input();
  const at::Tensor out = checkpoint_graph(
      policy::nothing(),
      [&](const at::Tensor& t) {
        const at::Tensor y = t.sin().exp();
        const at::Tensor inner = grad({y.sum()}, {t}, {}, true)[0];
        return y.tanh() * inner.detach();
      },
      x);
  const at::Tensor y = x.sin().exp();
  const at::Tensor inner = grad({y.sum()}, {x}, {}, true)[0];
  EXPECT_TRUE(at::equal(grad({out.sum()}, {x})[0],
                        grad({(y.tanh() * inner).sum()}, {x})[0]));

  at::Tensor half;
  EXPECT_THROW(checkpoint_graph(
                   policy::nothing(),
                   [&](const at::Tensor& t) -> at::Tensor {
                     half = t.sin().exp();
                     throw std::runtime_error("stop here");
                   },
                   x),
               std::runtime_error);
  EXPECT_TRUE(at::equal(grad({half.sum()}, {x})[0],
                        grad({x.sin().exp().sum()}, {x})[0]));
}

TEST(CheckpointGraph, ABackwardThatFailsCanBeRepeated) {
  const at::Tensor x = input();
  bool fail = true;
  const at::Tensor out = checkpoint_graph(
      policy::nothing(),
      [&](const at::Tensor& t) {
        const at::Tensor y = t.sin();
        y.register_hook([&](const at::Tensor& g) {
          if (fail) {
            throw std::runtime_error("not yet");
          }
          return g;
        });
        return y.exp().tanh();
      },
      x);
  const MemoryMeter meter;
  EXPECT_THROW(grad({out.sum()}, {x}, {}, true), std::runtime_error);
  EXPECT_LE(meter.live_bytes(), 64);
  fail = false;
  EXPECT_TRUE(at::equal(grad({out.sum()}, {x})[0],
                        grad({x.sin().exp().tanh().sum()}, {x})[0]));
}

TEST(CheckpointGraph, NothingIsLeftWithTheGraphGone) {
  const at::Tensor x = at::full({1 << 16}, 0.5f).requires_grad_();
  const MemoryMeter meter;
  for (const bool backward : {false, true}) {
    const at::Tensor out =
        checkpoint_graph(policy::names({"node"}), steps, x).sum();
    if (backward) {
      grad({out}, {x});
    }
  }
  EXPECT_EQ(meter.live_bytes(), 0);
}

TEST(CheckpointGraph, BackwardsFromSeveralThreadsAndGroups) {
  const at::Tensor x = input();
  const at::Tensor out = checkpoint_graph(policy::names({"node"}), steps, x);
  const at::Tensor expected = grad({steps(x).sum()}, {x})[0];
  std::vector<at::Tensor> results(4);
  std::vector<std::thread> threads;
  for (at::Tensor& result : results) {
    threads.emplace_back([&] { result = grad({out.sum()}, {x}, {}, true)[0]; });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const at::Tensor& result : results) {
    EXPECT_TRUE(at::equal(result, expected));
  }
}

TEST(CheckpointGraph, NothingIsDoneWithoutGradients) {
  const at::Tensor x = input();
  const c10::NoGradGuard no_grad;
  EXPECT_TRUE(
      at::equal(checkpoint_graph(policy::nothing(), steps, x), steps(x)));
}

}  // namespace
}  // namespace remat
