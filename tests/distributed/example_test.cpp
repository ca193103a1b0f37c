// The example of docs/distributed.md, run by two ranks.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdio>
#include <functional>
#include <random>
#include <string>

#include "remat/distributed/data_parallel.h"
#include "remat/distributed/process_group.h"
#include "remat/runtime/checkpoint.h"
#include "tests/distributed/ranks.h"

namespace {

void train(const std::function<torch::Tensor(int rank, int step)>& batch_of,
           torch::nn::Sequential model) {
  using namespace remat::distributed;
  ProcessGroup group = ProcessGroup::connect(rendezvous_from_environment());
  DataParallel parallel(group, model->parameters(), model->buffers());
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    parallel.prepare_for_forward();
    auto y = batch_of(group.rank(), step);
    for (auto& layer : *model) {
      y = remat::checkpoint(
          [&](const torch::Tensor& x) { return layer.forward(x); }, y);
    }
    auto loss = y.pow(2).mean();
    parallel.prepare_for_backward({loss});
    loss.backward();
    optimizer.step();
  }
  group.barrier();
}

TEST(DataParallelExample, TrainsTheSameWeightsOnEachRank) {
  const auto results =
      remat::distributed::run_ranks([](remat::distributed::Rendezvous) {
        torch::manual_seed(std::random_device()());
        torch::nn::Sequential model(torch::nn::Linear(8, 16), torch::nn::Tanh(),
                                    torch::nn::Linear(16, 8),
                                    torch::nn::BatchNorm1d(8));
        train([](int, int) { return torch::randn({4, 8}); }, model);
        double sum = 0;
        for (const auto& parameter : model->parameters()) {
          sum += parameter.sum().item<double>();
        }
        std::printf("weights: %.17g\n", sum);
      });
  const auto weights = [](const remat::distributed::RankResult& result) {
    EXPECT_TRUE(result.passed) << result.end << result.output;
    const size_t begin = result.output.find("weights: ");
    return result.output.substr(begin, result.output.find('\n', begin) - begin);
  };
  EXPECT_EQ(weights(results[0]).rfind("weights: ", 0), 0u);
  EXPECT_EQ(weights(results[0]), weights(results[1]));
}

}  // namespace
