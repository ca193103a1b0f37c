// What docs/memory.md shows.
#include <remat/remat.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstdlib>
#include <iostream>
#include <vector>

namespace {

using Stack =
    torch::nn::ModuleHolder<remat::LayerStack<torch::nn::SequentialImpl>>;

Stack make_stack() {
  Stack stack;
  for (int i = 0; i < 6; ++i) {
    stack->push_back(torch::nn::Linear(256, 256));
    stack->push_back(torch::nn::Tanh());
  }
  return stack;
}

void expect(bool condition, const char* what) {
  if (!condition) {
    std::cerr << "not so: " << what << "\n";
    std::exit(1);
  }
}

}  // namespace

int main() {
  remat::install_cpu_allocator();
  Stack stack = make_stack();
  const at::Tensor sample = torch::randn({1024, 256});
  const remat::MemoryPlan plan =
      remat::fit_memory(*stack, sample, int64_t{1} << 30);
  std::cout << plan.explain() << "\n";
  stack->forward(sample).sum().backward();
  expect(plan.plan.peak_bytes < int64_t{1} << 30,
         "the plan is within the budget");

  int64_t least = 0;
  try {
    remat::fit_memory(*stack, sample, int64_t{1} << 20);
  } catch (const remat::NoPlanError& error) {
    std::cout << error.what() << "\n";
    least = error.least_bytes();
  }
  expect(least > 1 << 20, "1 MiB is too little");
  remat::set_cpu_allocator_limit(INT64_MAX);

  remat::MemoryMeter meter;
  meter.ledger().record(100'000);
  at::Tensor output;
  {
    const remat::MemoryScope forward(remat::MemoryTag::kActivations, "block");
    output = stack->forward(sample).sum();
  }
  {
    const remat::MemoryScope backward(remat::MemoryTag::kBackward);
    output.backward();
  }
  std::cout << meter.peak_bytes() << " bytes at the peak, of them "
            << meter.peak_bytes(remat::MemoryTag::kActivations)
            << " activations\n";
  expect(meter.peak_bytes(remat::MemoryTag::kActivations) > 4 << 20,
         "each layer's output is kept");

  int64_t live = 0;
  for (const remat::MemoryEvent& event : meter.ledger().timeline().events) {
    live += event.bytes;
  }
  expect(live == meter.live_bytes(), "the timeline is whole");

  std::vector<at::Tensor> cache{torch::ones({4 << 20}), torch::ones({4 << 20})};
  const remat::MemorySpiller spiller([&](int64_t bytes) -> int64_t {
    int64_t freed = 0;
    while (freed < bytes && !cache.empty()) {
      freed += static_cast<int64_t>(cache.back().nbytes());
      cache.pop_back();
    }
    return freed;
  });
  remat::release_cached_cpu_memory();
  remat::set_cpu_allocator_limit(remat::cpu_allocator_stats().live_bytes);
  torch::ones({4 << 20});
  expect(cache.size() == 1, "the spiller freed what was needed");
}
