// Random programs, regions and offloading mixed, on a device whose streams
// interleave at random: gradients equal those of the plain run to the last bit.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>

#include "remat/runtime/checkpoint.h"
#include "remat/runtime/policy.h"
#include "remat/runtime/save_on_cpu.h"
#include "tests/device/software_device.h"

namespace remat {
namespace {

using software::Order;
using torch::autograd::grad;

// A leaf is one operation, an inner node runs its children in a row, perhaps as
// a region, perhaps under an offloading scope of its own.
struct Program {
  int operation = 0;
  bool region = false;
  bool policy = false;
  bool offload = false;
  std::vector<Program> children;
};

Program draw_program(int depth) {
  Program program;
  program.operation = *rc::gen::inRange(0, 9);
  if (depth > 0) {
    program.region = *rc::gen::arbitrary<bool>();
    program.policy = *rc::gen::arbitrary<bool>();
    program.offload = *rc::gen::arbitrary<bool>();
    const int children = *rc::gen::inRange(1, 4);
    for (int i = 0; i < children; ++i) {
      program.children.push_back(draw_program(depth - 1));
    }
  }
  return program;
}

struct Runner {
  at::Tensor weight;
  std::shared_ptr<HostStore> store;  // null: the plain run
  int64_t min_bytes;
  bool skip_parameters;

  SaveOnCpuOptions offloads() const {
    return SaveOnCpuOptions().store(store).min_bytes(min_bytes).skip_parameters(
        skip_parameters);
  }

  // Bounded: spoiled memory is not a number, and nothing else may be.
  at::Tensor operation(int which, const at::Tensor& x) const {
    switch (which) {
      case 0:
        return at::mm(x, weight).tanh();
      case 1:
        return x.sin() * x;
      case 2:
        return at::mm(x, weight.t()).sigmoid();
      case 3: {
        // Interleaved views, as a fused projection has them.
        const auto parts = at::cat({x, x.cos()}, 1).chunk(4, 1);
        return at::cat({parts[0] * parts[3], parts[2] * parts[1]}, 1);
      }
      case 4:
        return x.t().contiguous().t().exp().clamp_max(2.0);
      case 5: {
        // A change in place of what was saved before, and not needed again.
        at::Tensor y = x * 1.5;
        y.narrow(0, 0, 1).add_(x.narrow(0, 1, 1));
        return y.sin();
      }
      case 6:
        return at::softmax(x, 1) * x.unsqueeze(0).expand({2, -1, -1})[1];
      case 7:
        return (x + (x.select(1, 0) * x.select(1, 2)).unsqueeze(1)).tanh();
      default:
        return (x * x.detach()).tanh();
    }
  }

  at::Tensor run(const Program& program, const at::Tensor& x) const {
    if (program.children.empty()) {
      return operation(program.operation, x);
    }
    const auto row = [this, program](const at::Tensor& input) {
      std::optional<SaveOnCpu> offload;
      if (store != nullptr && program.offload) {
        offload.emplace(offloads());
      }
      at::Tensor y = input;
      for (const Program& child : program.children) {
        y = run(child, y);
      }
      return y;
    };
    if (store == nullptr || !program.region) {
      return row(x);
    }
    auto options = CheckpointOptions().preserve_rng_state(false);
    if (program.policy) {
      options.policy(policy::operators({"aten::mm", "aten::sin"}));
    }
    return checkpoint(options, row, x);
  }
};

RC_GTEST_PROP(RandomOffload, GradientsEqualThePlainRun, ()) {
  const Program program = draw_program(3);
  const at::Tensor start =
      at::linspace(-1, 1, 24, at::kFloat).view({4, 6}).contiguous();
  const at::Tensor weights =
      at::linspace(-0.7, 0.8, 36, at::kFloat).view({6, 6}).sin();
  const auto order =
      *rc::gen::element(Order::kLazy, Order::kSideFirst, Order::kComputeFirst,
                        Order::kRandom, Order::kRandom, Order::kRandom);
  const auto seed = *rc::gen::arbitrary<uint64_t>();
  const auto store =
      host_store(HostStoreOptions()
                     .asynchronous(*rc::gen::weightedElement<bool>(
                         {{9, true}, {1, false}}))
                     .copies_in_flight(*rc::gen::inRange(0, 5))
                     .prefetch(*rc::gen::inRange(0, 5)));
  const int64_t min_bytes = *rc::gen::element(0, 100);
  const bool skip_parameters = *rc::gen::arbitrary<bool>();
  const bool whole = *rc::gen::arbitrary<bool>();
  const bool twice = *rc::gen::arbitrary<bool>();

  std::vector<at::Tensor> results[2];
  for (const bool offloads : {false, true}) {
    software::reset(offloads ? order : Order::kLazy, seed);
    const at::Tensor x = start.to(software::kDevice).requires_grad_();
    const at::Tensor w = weights.to(software::kDevice).requires_grad_();
    const Runner runner{w, offloads ? store : nullptr, min_bytes,
                        skip_parameters};
    at::Tensor y;
    {
      std::optional<SaveOnCpu> offload;
      if (offloads && whole) {
        offload.emplace(runner.offloads());
      }
      y = runner.run(program, x * 1).pow(2).sum();
    }
    std::vector<at::Tensor> gradients;
    for (int i = 0; i < (twice ? 2 : 1); ++i) {
      for (const at::Tensor& gradient :
           grad({y}, {x, w}, {}, /*retain_graph=*/twice && i == 0, false,
                /*allow_unused=*/true)) {
        gradients.push_back(gradient);
      }
    }
    gradients.push_back(y.detach());
    for (const at::Tensor& gradient : gradients) {
      results[offloads].push_back(gradient.defined() ? gradient.cpu()
                                                     : at::Tensor());
    }
    software::finish();
  }
  for (size_t i = 0; i < results[0].size(); ++i) {
    const at::Tensor& plain = results[0][i];
    const at::Tensor& offloaded = results[1][i];
    const bool same = plain.defined()
                          ? offloaded.defined() && at::equal(plain, offloaded)
                          : !offloaded.defined();
    RC_ASSERT(same);
  }
  RC_ASSERT(store->statistics().live_bytes == 0);
}

}  // namespace
}  // namespace remat
