// What a region costs beyond the recomputation itself: many small regions,
// forward and backward, against the same functions without regions. Prints
// microseconds a region: plain, with regions, forward alone, and the difference
// that is ours.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "remat/memory/threads.h"
#include "remat/runtime/checkpoint.h"

namespace {

constexpr int kRegions = 1000;
constexpr int kRounds = 15;

at::Tensor region(const at::Tensor& x) { return x.sin().exp(); }

template <class Action>
double median_microseconds(const Action& action) {
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    action();
    const std::chrono::duration<double, std::micro> time =
        std::chrono::steady_clock::now() - start;
    times.push_back(time.count() / kRegions);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main() {
  remat::set_compute_threads(1);
  const at::Tensor x = at::randn({16}).requires_grad_();
  const auto run = [&x](const auto& call) {
    at::Tensor sum = at::zeros({16});
    for (int i = 0; i < kRegions; ++i) {
      sum = sum + call();
    }
    torch::autograd::backward({sum.sum()});
  };
  const double forward = median_microseconds([&] {
    for (int i = 0; i < kRegions; ++i) {
      region(x);
    }
  });
  const double plain =
      median_microseconds([&] { run([&] { return region(x); }); });
  const auto with = [&](const remat::CheckpointOptions& options) {
    return median_microseconds(
        [&] { run([&] { return remat::checkpoint(options, region, x); }); });
  };
  const double regions = with(remat::CheckpointOptions());
  const double without_rng =
      with(remat::CheckpointOptions().preserve_rng_state(false));
  std::printf(
      "{\"plain\":%.2f,\"forward\":%.2f,\"regions\":%.2f,\"cost\":%.2f,"
      "\"cost_without_rng\":%.2f}\n",
      plain, forward, regions, regions - plain - forward,
      without_rng - plain - forward);
}
