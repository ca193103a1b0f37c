#include "tests/distributed/training.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace remat::distributed {
namespace {

Weights make_weights(const Program& program) {
  at::manual_seed(31415);
  Weights weights;
  for (const auto& shape : program.shapes) {
    weights.push_back((at::randn(shape, at::kDouble) * 0.5).requires_grad_());
  }
  return weights;
}

void seed_step(int rank, int step) {
  // Masks differ from rank to rank.
  at::manual_seed(1000 + static_cast<uint64_t>(rank) * 100 +
                  static_cast<uint64_t>(step));
}

// What averaging by hand gives for these weights: no reducer, no region.
Weights averaged_by_hand(ProcessGroup& group, const Program& program,
                         const Weights& weights, int step) {
  seed_step(group.rank(), step);
  const at::Tensor loss = program.loss(plain_call(weights, step, group.rank()));
  Weights means = torch::autograd::grad({loss}, weights, {}, {}, false, true);
  for (size_t i = 0; i < means.size(); ++i) {
    if (!means[i].defined()) {
      means[i] = at::zeros_like(weights[i]);
    }
    group.all_reduce_sum(means[i]);
    means[i] /= group.size();
  }
  return means;
}

// The gradients of every step.
std::vector<Weights> train(ProcessGroup& group, const Program& program,
                           const DataParallelOptions& options, bool regions) {
  const Weights weights = make_weights(program);
  DataParallel parallel(group, weights, {}, options);
  GradientCounter counter(weights);
  std::vector<Weights> steps;
  for (int step = 0; step < program.steps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const Weights by_hand = averaged_by_hand(group, program, weights, step);
    for (const at::Tensor& weight : weights) {
      weight.mutable_grad() = at::Tensor();
    }
    counter.take();
    seed_step(group.rank(), step);
    Program::Call call = plain_call(weights, step, group.rank());
    call.regions = regions;
    const auto before = [&] { parallel.prepare_for_forward(); };
    const auto after = [&](const Weights& outputs) {
      parallel.prepare_for_backward(outputs);
    };
    if (program.own_prepare) {
      call.prepare_for_forward = before;
      call.prepare_for_backward = after;
      torch::autograd::backward({program.loss(call)});
    } else {
      before();
      const at::Tensor loss = program.loss(call);
      after({loss});
      torch::autograd::backward({loss});
    }
    const std::vector<int> counts = counter.take();
    steps.push_back(gradients_of(weights));
    EXPECT_TRUE(same_on_all_ranks(group, steps.back()));
    for (size_t i = 0; i < weights.size(); ++i) {
      SCOPED_TRACE("parameter " + std::to_string(i));
      const at::Tensor gradient = weights[i].grad().defined()
                                      ? weights[i].grad()
                                      : at::zeros_like(weights[i]);
      EXPECT_TRUE(at::allclose(gradient, by_hand[i], 1e-10, 1e-12));
      EXPECT_LE(counts[i], 1);
      if (program.uses_all) {
        EXPECT_EQ(counts[i], 1);
        EXPECT_GT(gradient.abs().max().item<double>(), 0);
      }
      const at::NoGradGuard no_grad;
      at::Tensor weight = weights[i];
      weight.sub_(gradient, 0.1);
    }
  }
  return steps;
}

}  // namespace

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) {
    return a.defined() == b.defined();
  }
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         at::equal(a.detach().contiguous().flatten().view(at::kByte),
                   b.detach().contiguous().flatten().view(at::kByte));
}

bool same_on_all_ranks(ProcessGroup& group, const Weights& tensors) {
  bool same = true;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor defined = at::full({1}, tensor.defined(), at::kLong);
    const Weights all_defined = group.all_gather(defined);
    const bool agree = at::equal(all_defined[0], defined);
    for (const at::Tensor& other : all_defined) {
      same = same && at::equal(other, defined);
    }
    if (!agree || !tensor.defined()) {
      continue;
    }
    for (const at::Tensor& other : group.all_gather(tensor)) {
      same = same && same_bits(other, tensor);
    }
  }
  return same;
}

Weights gradients_of(const Weights& weights) {
  Weights gradients;
  for (const at::Tensor& weight : weights) {
    gradients.push_back(weight.grad().defined() ? weight.grad().clone()
                                                : at::Tensor());
  }
  return gradients;
}

GradientCounter::GradientCounter(const Weights& parameters) {
  using torch::autograd::variable_list;
  for (const at::Tensor& parameter : parameters) {
    auto count = std::make_shared<int>(0);
    auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
    accumulator->add_post_hook(
        std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [count](const variable_list& outputs, const variable_list&) {
              ++*count;
              return outputs;
            }));
    counts_.push_back(std::move(count));
    // A pointer whose type differs between versions of libtorch.
    accumulators_.push_back(
        std::make_shared<decltype(accumulator)>(std::move(accumulator)));
  }
}

std::vector<int> GradientCounter::take() {
  std::vector<int> counts;
  for (const auto& count : counts_) {
    counts.push_back(std::exchange(*count, 0));
  }
  return counts;
}

Program::Call plain_call(const Weights& weights, int step, int rank) {
  return {weights, false, step, rank, [] {}, [](const Weights&) {}};
}

void expect_regions_change_nothing(ProcessGroup& group, const Program& program,
                                   const DataParallelOptions& options) {
  std::vector<Weights> plain, recomputed;
  {
    SCOPED_TRACE("plain");
    plain = train(group, program, options, false);
  }
  {
    SCOPED_TRACE("with regions");
    recomputed = train(group, program, options, true);
  }
  for (size_t step = 0; step < plain.size(); ++step) {
    for (size_t i = 0; i < plain[step].size(); ++i) {
      EXPECT_TRUE(same_bits(plain[step][i], recomputed[step][i]))
          << "step " << step << ", parameter " << i << "\n"
          << plain[step][i] << "\n"
          << recomputed[step][i];
    }
  }
}

void expect_regions_change_nothing(ProcessGroup& group, const Program& program,
                                   Statics statics,
                                   bool find_unused_parameters) {
  for (const bool static_graph : {false, true}) {
    if ((static_graph && statics == Statics::kNo) ||
        (!static_graph && statics == Statics::kOnly)) {
      continue;
    }
    for (const bool one_bucket : {true, false}) {
      DataParallelOptions options;
      options.static_graph = static_graph;
      options.find_unused_parameters = find_unused_parameters;
      if (!one_bucket) {
        options.bucket_bytes = options.first_bucket_bytes = 1;
      }
      SCOPED_TRACE(std::string(static_graph ? "static graph" : "any graph") +
                   (one_bucket ? ", one bucket" : ", a bucket a parameter"));
      expect_regions_change_nothing(group, program, options);
    }
  }
}

at::Tensor input_of(int rank, int step, at::IntArrayRef sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) {
    count *= size;
  }
  return at::arange(count, at::kDouble)
      .mul(0.7 + 0.1 * rank + 0.05 * step)
      .sin()
      .reshape(sizes);
}

at::Tensor layer(const at::Tensor& w, const at::Tensor& x) {
  return at::tanh(at::mm(x, w.t()));
}

}  // namespace remat::distributed
