// A two-layer region with dropout: its gradients with recomputation are those
// of the plain run, to the last bit.
#include <remat/remat.h>
#include <torch/torch.h>

#include <cstdio>

int main() {
  auto w1 = torch::randn({32, 64}, torch::requires_grad());
  auto w2 = torch::randn({64, 32}, torch::requires_grad());
  const auto x = torch::randn({8, 32});
  int runs = 0;
  const auto block = [&](const at::Tensor& input) {
    ++runs;
    return torch::dropout(torch::gelu(input.matmul(w1)), 0.1, true).matmul(w2);
  };
  const auto gradients = [&](bool recompute) {
    torch::manual_seed(7);
    const auto y = recompute ? remat::checkpoint(block, x) : block(x);
    return torch::autograd::grad({y.square().sum()}, {w1, w2});
  };
  const auto plain = gradients(false);
  const auto recomputed = gradients(true);
  const bool same = torch::equal(plain[0], recomputed[0]) &&
                    torch::equal(plain[1], recomputed[1]);
  std::printf("remat %s: gradients %s, the block ran %d times\n",
              remat::version(), same ? "equal" : "DIFFER", runs);
  return same && runs == 3 ? 0 : 1;
}
