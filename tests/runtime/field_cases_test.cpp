// Programs on which other systems went wrong, reduced from public reports
// (named at each), with the values of plain autograd in double precision.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "remat/runtime/checkpoint.h"
#include "remat/runtime/torch_compat.h"
#include "tests/runtime/helpers.h"

namespace remat {
namespace {

using ::testing::HasSubstr;
using torch::autograd::backward;
using torch::autograd::grad;

at::Tensor matrix(at::ArrayRef<double> list, int64_t columns) {
  return values(list).view({-1, columns});
}

// Case 3, pytorch#14253, guided-diffusion#167: dropout inside the region.
TEST(FieldCases, DropoutMaskIsReplayed) {
  const auto run = [](const at::Tensor& t) {
    return at::dropout(t, 0.5, true) * t;
  };
  at::manual_seed(123);
  const at::Tensor x = at::ones({16}, at::kDouble).requires_grad_();
  const at::Tensor y = checkpoint(run, x);
  const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  backward({y.sum()});
  EXPECT_TRUE(at::equal(x.grad(), at::where(y.detach() != 0, 4.0, 0.0)));
  EXPECT_TRUE(
      at::equal(state, at::detail::getDefaultCPUGenerator().get_state()));

  // Two batches whose forwards come before both backwards.
  at::manual_seed(9);
  const at::Tensor a = at::ones({6}, at::kDouble).requires_grad_();
  const at::Tensor b = at::ones({6}, at::kDouble).requires_grad_();
  const at::Tensor loss_a = checkpoint(run, a).sum();
  const at::Tensor loss_b = checkpoint(run, b).sum();
  backward({loss_a});
  backward({loss_b});
  at::manual_seed(9);
  const at::Tensor mask_a = run(at::ones({6}, at::kDouble));
  const at::Tensor mask_b = run(at::ones({6}, at::kDouble));
  EXPECT_TRUE(at::equal(a.grad(), mask_a * 2));
  EXPECT_TRUE(at::equal(b.grad(), mask_b * 2));
}

// Case 4, pytorch#127676: a generator that is not the default one.
TEST(FieldCases, GeneratorOfTheUsersIsReplayed) {
  for (const bool preserve : {true, false}) {
    at::Generator g = at::detail::createCPUGenerator(5);
    const at::Tensor x = at::ones({8}, at::kDouble).requires_grad_();
    const at::Tensor o = checkpoint(
        CheckpointOptions().preserve_rng_state(preserve).generators({g}),
        [&g](const at::Tensor& t) {
          return t * t * at::bernoulli(at::full({8}, 0.5, at::kDouble), g);
        },
        x);
    const at::Tensor state = g.get_state();
    backward({o.sum()});
    EXPECT_TRUE(at::equal(x.grad(), 2 * o.detach()));
    EXPECT_TRUE(at::equal(state, g.get_state()));
  }
}

// Case 5, pytorch#7617, transformers#21381, trl#3089: only the weights inside
// require gradients.
TEST(FieldCases, FrozenInputTrainableWeight) {
  const at::Tensor x = matrix({1, 2, 3, 4}, 2);
  const at::Tensor w = matrix({0.5, -1, 1.5, 2}, 2).requires_grad_();
  const at::Tensor o = checkpoint(
      [w](const at::Tensor& t) { return at::tanh(at::mm(t, w)); }, x);
  EXPECT_TRUE(o.requires_grad());
  backward({o.sum()});
  expect_near(w.grad(), matrix({0.0036445555460877, 0.010410786858271725,
                                0.007286663875108505, 0.020458407254655742},
                               2));
}

// Case 6, peft#1142, transformers#42489: low-rank pair on a frozen base.
TEST(FieldCases, LoraOnFrozenBase) {
  const at::Tensor embedding = matrix({1, 0, -1, 0.5, 2, 1}, 3);
  const at::Tensor base = matrix({1, 2, 3, 0, 1, 0, 1, 0, 1}, 3);
  const at::Tensor a = matrix({0.1, -0.2, 0.3}, 3).requires_grad_();
  const at::Tensor b = matrix({0.5, 0, -0.5}, 1).requires_grad_();
  const at::Tensor h = checkpoint(
      [=](const at::Tensor& t) {
        return at::relu(at::mm(t, base.t()) + at::mm(at::mm(t, a.t()), b.t()));
      },
      embedding);
  const at::Tensor loss =
      checkpoint([](const at::Tensor& t) { return t * t; }, h).sum();
  EXPECT_NEAR(loss.item<double>(), 62.21125, 1e-12);
  backward({loss});
  expect_near(a.grad(), matrix({2.875, 11.9, 6.05}, 3));
  expect_near(b.grad(), matrix({-0.7475, -0.2, -0.1925}, 1));
  EXPECT_FALSE(base.grad().defined());
  EXPECT_FALSE(embedding.grad().defined());
}

// Case 7, accelerate#3679, pytorch#143580: gradients of two batches add up.
TEST(FieldCases, GradientAccumulation) {
  const at::Tensor w = matrix({1, -1, 2, 0.5}, 2).requires_grad_();
  for (const at::Tensor& x : {matrix({1, 2}, 2), matrix({3, -1}, 2)}) {
    const at::Tensor o = checkpoint(
        [w](const at::Tensor& t) { return at::tanh(at::mm(t, w)).pow(2); }, x);
    backward({o.sum() / 2});
  }
  expect_near(w.grad(), matrix({0.9597315794177974, -0.010902751967222422,
                                -0.3194868707366913, 0.0036342506557408075},
                               2));
}

// Case 8, pytorch#141896, pytorch#193338: the cast of a weight was cached
// before the region, or by another region.
class AutocastRegion {
 public:
  AutocastRegion() {
    compat::set_autocast_dtype(c10::DeviceType::CPU, at::kBFloat16);
    compat::set_autocast_enabled(c10::DeviceType::CPU, true);
    at::autocast::increment_nesting();
  }
  ~AutocastRegion() {
    at::autocast::decrement_nesting();
    at::autocast::clear_cache();
    compat::set_autocast_enabled(c10::DeviceType::CPU, false);
  }
};

TEST(FieldCases, AutocastOfAWeightUsedBefore) {
  std::vector<at::ScalarType> products;
  const auto mm = [&products](const at::Tensor& t, const at::Tensor& w) {
    at::Tensor product = at::mm(t, w);
    products.push_back(product.scalar_type());
    return product;
  };
  for (const bool first_plain : {true, false}) {
    const at::Tensor x =
        matrix({1, 2, 3, 4}, 2).to(at::kFloat).requires_grad_();
    const at::Tensor w =
        matrix({0.5, -1, 0.25, 2}, 2).to(at::kFloat).requires_grad_();
    at::Tensor loss;
    {
      const AutocastRegion autocast;
      if (first_plain) {
        loss =
            checkpoint(
                [&](const at::Tensor& t) { return mm(at::relu(mm(t, w)), w); },
                mm(x, w))
                .to(at::kFloat)
                .sum();
      } else {
        const auto region = [&](const at::Tensor& t) {
          return at::relu(mm(t, w));
        };
        loss = checkpoint(region, checkpoint(region, x)).to(at::kFloat).sum();
      }
    }
    backward({loss});
    const auto floats = [](at::ArrayRef<double> list) {
      return matrix(list, 2).to(at::kFloat);
    };
    EXPECT_TRUE(at::equal(x.grad(), first_plain
                                        ? floats({-5.625, 8.125, -5.625, 8.125})
                                        : floats({-2.5, 4.375, -2.5, 4.375})));
    EXPECT_TRUE(at::equal(w.grad(), first_plain
                                        ? floats({-8, 29.125, -6.5, 56.75})
                                        : floats({1.5, 12.5, 5, 21.5})));
  }
  EXPECT_THAT(products, ::testing::Each(at::kBFloat16));
}

// Case 9, transformers#28056, pytorch#155171: the region appends to a cache.
TEST(FieldCases, CacheIsAppendedOnceWhereDeclared) {
  std::vector<at::Tensor> cache;
  const auto fn = [&cache](const at::Tensor& t) {
    cache.push_back(t.detach());
    const at::Tensor keys = at::cat(cache, 0);
    return at::softmax(at::mm(t, keys.t()), 1).sum(1) * t.select(1, 0);
  };
  const at::Tensor x = matrix({1, 2, 3, 4}, 2).requires_grad_();
  const at::Tensor undeclared = checkpoint(fn, x).sum();
  const std::string error = error_of([&] { grad({undeclared}, {x}); });
  EXPECT_THAT(error, HasSubstr("Double[2, 2] on cpu in forward, Double[2, 4]"));

  cache.clear();
  const at::Tensor loss =
      checkpoint(CheckpointOptions().state(cache), fn, x).sum();
  EXPECT_NEAR(loss.item<double>(), 4, 1e-12);
  expect_near(grad({loss}, {x})[0], matrix({1, 0, 1, 0}, 2));
  EXPECT_EQ(cache.size(), 1u);
}

// Case 10, torchtitan#1117, NeMo-RL#1203: a router decides otherwise.
at::Tensor routed(const at::Tensor& t, const at::Tensor& w, bool first) {
  const double eps = first ? 1e-6 : -1e-6;
  const at::Tensor expert = at::stack({0.1 * t, 0.1 * t + eps}, 1).argmax(1);
  at::Tensor out = at::zeros_like(t);
  for (int64_t j = 0; j < 2; ++j) {
    const at::Tensor chosen = at::nonzero(expert == j).squeeze(1);
    out = out.index_add(0, chosen,
                        at::sin(t.index_select(0, chosen)) * w.select(0, j));
  }
  return out;
}

TEST(FieldCases, RouteThatFlipsIsAnError) {
  const at::Tensor x = values({0.5, -0.2, 1.0}).requires_grad_();
  const at::Tensor w = values({2, 3}).requires_grad_();
  int calls = 0;
  const auto fn = [&](const at::Tensor& t) {
    return routed(t, w, calls++ == 0);
  };
  const at::Tensor loss = checkpoint(fn, x).sum();
  EXPECT_NEAR(loss.item<double>(), 3.3666815778511148, 1e-12);
  EXPECT_THAT(error_of([&] { backward({loss}); }), HasSubstr("[3]"));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(w.grad().defined());
}

TEST(FieldCases, RouteThatIsKeptDoesNotFlip) {
  const at::Tensor x = values({0.5, -0.2, 1.0}).requires_grad_();
  const at::Tensor w = values({2, 3}).requires_grad_();
  int calls = 0;
  const at::Tensor loss =
      checkpoint(
          CheckpointOptions().policy(policy::operators({"aten::argmax"})),
          [&](const at::Tensor& t) { return routed(t, w, calls++ == 0); }, x)
          .sum();
  backward({loss});
  EXPECT_EQ(calls, 2);
  expect_near(x.grad(), values({2.6327476856711183, 2.940199733523725,
                                1.6209069176044193}));
  expect_near(w.grad(), values({0.0, 1.1222271926170384}));
}

// Case 13, ColossalAI#1460: the region's first operation is in place.
TEST(FieldCases, RegionThatChangesItsInput) {
  const auto fn = [](const at::Tensor& t) {
    at::Tensor same = t;
    return same.mul_(2).relu_() * 3;
  };
  const at::Tensor x0 = values({1, -2, 3}).requires_grad_();
  EXPECT_THAT(error_of([&] { checkpoint(fn, x0 * 2); }),
              HasSubstr("changed its input 0, Double[3], in place"));

  const at::Tensor x = x0 * 2;
  const at::Tensor o =
      checkpoint(CheckpointOptions().clone_inputs(true), fn, x).sum();
  for (const bool retain : {true, false}) {
    x0.mutable_grad() = at::Tensor();
    backward({o}, {}, retain);
    EXPECT_TRUE(at::equal(x0.grad(), values({12, 0, 12})));
    EXPECT_TRUE(at::equal(x, values({4, 0, 12})));
  }
}

// Case 14, pytorch's warning on global state: a counter that enters the values.
TEST(FieldCases, BufferThatTheRegionChanges) {
  const auto run = [](const auto& with) {
    const at::Tensor buffer = at::zeros({1}, at::kDouble);
    const at::Tensor x = values({1, 2}).requires_grad_();
    const at::Tensor o = checkpoint(
                             with(buffer),
                             [buffer](const at::Tensor& t) {
                               buffer.add_(1);
                               return at::sin(t * buffer);
                             },
                             x)
                             .sum();
    EXPECT_NEAR(o.item<double>(), 1.7507684116335782, 1e-12);
    backward({o});
    expect_near(x.grad(), values({0.5403023058681398, -0.4161468365471424}));
    EXPECT_EQ(buffer.item<double>(), 1);
  };
  run([](const at::Tensor& buffer) {
    return CheckpointOptions().buffers({buffer}).determinism_check(
        DeterminismCheck::kValues);
  });
  EXPECT_THAT(error_of([&] {
                run([](const at::Tensor&) { return CheckpointOptions(); });
              }),
              HasSubstr("changed in place since its forward"));
}

// Case 16, pytorch#81296: a parameter outside and inside; its hook runs once.
TEST(FieldCases, SharedParameterHookRunsOnce) {
  const at::Tensor w = values({2, 3}).requires_grad_();
  const at::Tensor x = values({1, 4}).requires_grad_();
  int calls = 0;
  w.register_hook([&calls](const at::Tensor&) { ++calls; });
  const at::Tensor o =
      checkpoint([w](const at::Tensor& t) { return w * t * t; }, w * x).sum();
  backward({o});
  EXPECT_EQ(calls, 1);
  expect_near(w.grad(), values({12, 432}));
  expect_near(x.grad(), values({16, 216}));
}

// Case 18, pytorch#104040: a gradient penalty through the region.
TEST(FieldCases, GradientPenalty) {
  const at::Tensor x = values({0.5, 1.5}).requires_grad_();
  const at::Tensor w = values({1, 2}).requires_grad_();
  const at::Tensor o =
      checkpoint([w](const at::Tensor& t) { return at::tanh(t * w) * t; }, x)
          .sum();
  const at::Tensor gx = grad({o}, {x}, {}, true, true)[0];
  expect_near(gx.detach(), values({0.8553410237429735, 1.0246528651830509}));
  const at::Tensor penalty = gx.pow(2).sum();
  EXPECT_NEAR(penalty.item<double>(), 1.7815217610255134, 1e-12);
  backward({penalty});
  expect_near(x.grad(), values({2.069009164865184, -0.16054838486957626}));
  expect_near(w.grad(), values({1.034504582432592, -0.1204112886521822}));

  const at::Tensor t = values({0.8}).requires_grad_();
  at::Tensor f =
      checkpoint([](const at::Tensor& u) { return u.sin().exp(); }, t);
  for (const double expected : {2.049008650164274, 1.4275580740798286,
                                -0.47527954730701716, -3.8068234826120255}) {
    EXPECT_NEAR(f.item<double>(), expected, 1e-12);
    f = grad({f}, {t}, {}, true, true)[0];
  }
}

// Case 19, pytorch#82156: two outputs, a backward each.
TEST(FieldCases, TwoOutputsTwoBackwards) {
  const at::Tensor x = values({0.4}).requires_grad_();
  const auto [first, second] = checkpoint(
      [](const at::Tensor& t) {
        return std::make_pair(t.sin().exp(), t.cos().exp());
      },
      x);
  const at::Tensor alone = grad({first}, {x})[0];
  EXPECT_NEAR(alone.item<double>(), 1.359598347262776, 1e-12);
  EXPECT_NEAR((alone + grad({second}, {x})[0]).item<double>(),
              0.38139732821775263, 1e-12);
}

// Case 23, pytorch#143573: what runs again, and what is told.
TEST(FieldCases, EarlyStopAndSideEffects) {
  for (const bool early_stop : {true, false}) {
    const at::Tensor x = values({1}).requires_grad_();
    int n = 0, begins = 0, ends = 0;
    const at::Tensor o = checkpoint(
        CheckpointOptions()
            .early_stop(early_stop)
            .on_recompute([&] { ++begins; }, [&] { ++ends; }),
        [&n](const at::Tensor& t) {
          const at::Tensor y = t.sin().cos();
          ++n;
          return y.clone();
        },
        x);
    backward({o});
    EXPECT_NEAR(x.grad().item<double>(), -0.40286244305285346, 1e-12);
    EXPECT_EQ(n, early_stop ? 1 : 2);
    EXPECT_EQ(begins, 1);
    EXPECT_EQ(ends, 1);
  }
}

// Case 30, DeepSpeed#1057, TensorFlow#56692: integer and bool tensors, the
// input as an output, the same tensor twice, an output nobody uses.
TEST(FieldCases, OtherArgumentsAndResults) {
  const at::Tensor x = matrix({1, 2, 3, 4, 5, 6}, 2).requires_grad_();
  const at::Tensor chosen = checkpoint(
      [](const at::Tensor& t, const at::Tensor& index, const at::Tensor& mask) {
        const at::Tensor rows = t.index_select(0, index);
        return at::where(mask, rows.sin(), rows.cos());
      },
      x, at::tensor({2, 0}, at::kLong), at::tensor({1, 0}).to(at::kBool));
  expect_near(grad({chosen.sum()}, {x})[0],
              matrix({0.5403023058681398, -0.9092974268256817, 0, 0,
                      0.28366218546322625, 0.27941549819892586},
                     2));

  const at::Tensor t = values({1, 2}).requires_grad_();
  const auto [same, square, none, text, number] = checkpoint(
      [](const at::Tensor& u) {
        return std::make_tuple(u, u * u, std::optional<at::Tensor>(),
                               std::string("s"), 5);
      },
      t);
  EXPECT_FALSE(none.has_value());
  EXPECT_EQ(text, "s");
  EXPECT_EQ(number, 5);
  expect_near(grad({same.sum() + square.sum()}, {t})[0], values({3, 5}));

  const at::Tensor twice = checkpoint(
      [](const at::Tensor& a, const at::Tensor& b) { return at::sin(a * b); },
      t, t);
  expect_near(grad({twice.sum()}, {t})[0],
              values({1.0806046117362795, -2.6145744834544478}));

  const at::Tensor w = values({1, 1}).requires_grad_();
  const auto used = checkpoint(
      [w](const at::Tensor& u) { return std::make_pair(u * u, (u * w).exp()); },
      t);
  backward({used.first.sum()});
  expect_near(t.grad(), values({2, 4}));
  EXPECT_FALSE(w.grad().defined());
}

}  // namespace
}  // namespace remat
