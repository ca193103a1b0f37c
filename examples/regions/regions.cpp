// The examples of docs/regions.md, compiled and run as a test.
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

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t width)
      : up(register_module("up", torch::nn::Linear(width, 4 * width))),
        down(register_module("down", torch::nn::Linear(4 * width, width))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return x + down(torch::gelu(up(x)));
  }
  torch::nn::Linear up, down;
};
TORCH_MODULE(Block);

void regions(const torch::Tensor& x) {
  Block block(16);
  auto y = remat::checkpoint(block, x);
  auto z = remat::checkpoint(
      [block](const torch::Tensor& a, double scale) mutable {
        return std::make_pair(block(a) * scale, a.sin());
      },
      y, 0.5);
  (z.first.sum() + z.second.sum()).backward();
  expect(block->up->weight.grad().defined(), "gradients of captured modules");
}

using RecomputingBlock = torch::nn::ModuleHolder<remat::Recomputing<BlockImpl>>;

struct ModelImpl : torch::nn::Module {
  ModelImpl() { register_module("layers", layers); }
  torch::nn::Sequential layers{RecomputingBlock(16), RecomputingBlock(16),
                               RecomputingBlock(16)};
};
TORCH_MODULE(Model);

void layers(const torch::Tensor& x) {
  Model model;
  remat::recompute_where(*model, [](const std::string& name, auto&) {
    return name != "layers.0";
  });
  remat::recompute_every_nth(*model, 2);  // the first, the third, ...
  model->layers->forward(x).sum().backward();

  std::vector<Block> blocks;
  for (int i = 0; i < 9; ++i) {
    blocks.emplace_back(16);
  }
  auto segments =
      remat::checkpoint_sequential(blocks, remat::square_root_segments(9), x);
  auto nested = remat::checkpoint_nested(blocks, x);
  auto every_2nd =
      remat::checkpoint_layers(blocks, remat::every_nth_layer(9, 2), x);
  expect(torch::equal(segments, nested), "the same values");
  expect(torch::equal(segments, every_2nd), "the same values");
}

void state(const torch::Tensor& x) {
  torch::nn::BatchNorm1d norm(16);
  auto y = remat::checkpoint(norm, x);
  y.sum().backward();
  expect(norm->num_batches_tracked.item<int64_t>() == 1, "statistics");

  int calls = 0;
  auto z = remat::checkpoint(
      remat::CheckpointOptions().state(calls).name("counted"),
      [&calls](const torch::Tensor& a) { return a.sin().exp() * ++calls; }, x);
  z.sum().backward();
  expect(calls == 1, "declared state");
}

void policies(const torch::Tensor& x) {
  Block block(16);
  auto y = remat::checkpoint(
      remat::CheckpointOptions().policy(remat::policy::matmuls()), block, x);
  auto z = remat::checkpoint(
      remat::CheckpointOptions().policy(remat::policy::names({"scores"})),
      [](const torch::Tensor& a) {
        auto scores = remat::keep("scores", torch::mm(a, a.t()));
        return torch::softmax(scores, 1);
      },
      y);
  remat::print_saved([&](const torch::Tensor& a) { return block(a); }, x);
  z.sum().backward();
}

void hooks(const torch::Tensor& x) {
  torch::Tensor y;
  {
    remat::SavedTensorHooks hooks(
        [](const torch::Tensor& t) { return t.to(torch::kBFloat16); },
        [](const torch::Tensor& packed) { return packed.to(torch::kFloat); });
    y = x.sin().exp();
  }
  y.sum().backward();
}

void groups(const torch::Tensor& x) {
  auto [a, b] = remat::checkpoint(
      [](const torch::Tensor& t) {
        return std::make_pair(t.sin().exp(), t.cos().exp());
      },
      x);
  {
    remat::RecomputeGroup group;
    a.sum().backward();
    b.sum().backward();
  }
}

}  // namespace

int main() {
  const auto x = torch::randn({8, 16}, torch::requires_grad());
  regions(x);
  layers(x);
  state(x);
  policies(x);
  hooks(x);
  groups(x);
}
