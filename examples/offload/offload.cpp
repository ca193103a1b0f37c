// The examples of docs/offload.md, compiled and run as a test. Without a device
// of its own everything stays where it is, and the results are the same.
#include <remat/remat.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>

namespace {

void expect(bool right, const char* what) {
  if (!right) {
    std::cerr << "wrong: " << what << '\n';
    std::exit(1);
  }
}

void train(torch::nn::Sequential model, const torch::Tensor& x) {
  auto store = remat::host_store();
  for (int step = 0; step < 3; ++step) {
    torch::Tensor loss;
    {
      remat::SaveOnCpu offload(remat::SaveOnCpuOptions().store(store));
      loss = model->forward(x).pow(2).mean();
    }
    loss.backward();
  }
  auto statistics = store->statistics();
  std::cout << statistics.bytes_out << " bytes moved out\n";
  expect(statistics.live_bytes == 0, "nothing is left");
}

void frozen(torch::nn::Sequential model, const torch::Tensor& x) {
  for (auto& weight : model->parameters()) {
    weight.requires_grad_(false);
  }
  remat::SaveOnCpu offload(
      remat::SaveOnCpuOptions().min_bytes(1 << 20).stay(model->parameters()));
  auto y = model->forward(x);
  expect(y.requires_grad(), "the input's gradient");
}

void with_regions(torch::nn::Sequential model, const torch::Tensor& x) {
  remat::SaveOnCpu offload;
  auto y = remat::checkpoint(
      [&](const torch::Tensor& a) { return model->forward(a); }, x);
  y.sum().backward();
}

void options(const torch::Tensor& x) {
  auto store = remat::host_store(
      remat::HostStoreOptions().copies_in_flight(2).prefetch(4));
  auto stored = store->put(x);
  auto back = stored->get();
  expect(torch::equal(back, x), "the same values");
}

}  // namespace

int main() {
  torch::nn::Sequential model(torch::nn::Linear(16, 64), torch::nn::GELU(),
                              torch::nn::Linear(64, 16));
  const auto x = torch::randn({8, 16}, torch::requires_grad());
  train(model, x);
  with_regions(model, x);
  options(x);
  frozen(model, x);
}
