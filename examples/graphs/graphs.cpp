// The examples of docs/graphs.md, compiled and run as a test.
#include <remat/remat.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>

namespace {

void expect_same(const torch::Tensor& recorded, const torch::Tensor& plain,
                 const torch::Tensor& x) {
  const auto expected = torch::autograd::grad({plain.sum()}, {x})[0];
  const auto gradient = torch::autograd::grad({recorded.sum()}, {x})[0];
  if (!torch::equal(gradient, expected)) {
    std::cerr << "wrong gradient\n";
    std::exit(1);
  }
}

void named(torch::nn::Linear block, const torch::Tensor& x) {
  auto y = remat::checkpoint_graph(
      remat::policy::names({"trunk"}),
      [&](const torch::Tensor& t) {
        auto trunk = remat::keep("trunk", block(t));
        return torch::sigmoid(block(trunk)) * trunk;
      },
      x);
  auto trunk = block(x);
  expect_same(y, torch::sigmoid(block(trunk)) * trunk, x);
}

void speed(torch::nn::Sequential network, const torch::Tensor& x) {
  auto run = [&](const torch::Tensor& t) { return network->forward(t); };
  auto y = remat::checkpoint_graph(remat::policy::matmuls(), run, x);
  expect_same(y, run(x), x);
}

void memory(torch::nn::Sequential layers, const torch::Tensor& x) {
  auto network = [&](const torch::Tensor& t) {
    auto y = t;
    for (int i = 0; i < 8; ++i) {
      y = layers->forward(y) + t;
    }
    return y;
  };
  const remat::GraphPlan plan = remat::plan_graph(network, x);
  std::cout << plan.describe() << '\n';
  auto y = remat::checkpoint_graph(plan, network, x);
  expect_same(y, network(x), x);
}

}  // namespace

int main() {
  const auto x = torch::randn({8, 16}, torch::requires_grad());
  torch::nn::Sequential network(torch::nn::Linear(16, 64), torch::nn::GELU(),
                                torch::nn::Linear(64, 16), torch::nn::Tanh());
  named(torch::nn::Linear(16, 16), x);
  speed(network, x);
  memory(network, x);
}
