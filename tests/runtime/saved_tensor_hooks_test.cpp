#include "remat/runtime/saved_tensor_hooks.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <fstream>
#include <thread>

#include "remat/base/error.h"
#include "remat/runtime/checkpoint.h"

namespace remat {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::autograd::grad;

at::Tensor leaf(at::IntArrayRef sizes) {
  return at::randn(sizes, at::kDouble).requires_grad_();
}

const auto kSame = [](const at::Tensor& tensor) { return tensor; };

template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

// What backward gets is what unpack gives: with 2x and x/2 the gradients are
// the plain ones, with 2x alone those of twice the value.
TEST(SavedTensorHooks, BackwardGetsWhatUnpackGives) {
  const at::Tensor x = leaf({4});
  const at::Tensor plain = grad({(x * x).sum()}, {x})[0];
  int packs = 0, unpacks = 0;
  at::Tensor y;
  {
    const SavedTensorHooks hooks(
        [&](const at::Tensor& t) {
          ++packs;
          return t.detach() * 2;
        },
        [&](const at::Tensor& packed) {
          ++unpacks;
          return packed / 2;
        });
    y = (x * x).sum();
  }
  EXPECT_EQ(packs, 2);
  EXPECT_EQ(unpacks, 0);
  EXPECT_TRUE(at::equal(grad({y}, {x}, {}, true)[0], plain));
  EXPECT_EQ(unpacks, 2);
  grad({y}, {x});
  EXPECT_EQ(unpacks, 4);
  {
    const SavedTensorHooks hooks(
        [](const at::Tensor& t) { return t.detach() * 2; }, kSame);
    y = (x * x).sum();
  }
  EXPECT_TRUE(at::equal(grad({y}, {x})[0], plain * 2));
}

TEST(SavedTensorHooks, InnermostCountsAndScopesEnd) {
  const at::Tensor x = leaf({4});
  std::vector<std::string> who;
  const auto named = [&who](std::string name) {
    return [&who, name](const at::Tensor& t) {
      who.push_back(name);
      return t;
    };
  };
  {
    const SavedTensorHooks outer(named("outer"), kSame);
    x.sin();
    {
      const SavedTensorHooks inner(named("inner"), kSame);
      x.sin();
    }
    x.sin();
  }
  x.sin();
  EXPECT_THAT(who, ElementsAre("outer", "inner", "outer"));
}

// Compress, then offload: what the inner pack returns goes to the outer.
TEST(SavedTensorHooks, Compose) {
  const at::Tensor x = at::randn({8}, at::kDouble)
                           .to(at::kFloat)
                           .to(at::kDouble)
                           .requires_grad_();
  std::vector<at::ScalarType> outer_types;
  at::Tensor y;
  {
    const SavedTensorHooks outer(
        [&](const at::Tensor& t) {
          outer_types.push_back(t.scalar_type());
          return t + 1;
        },
        [](const at::Tensor& packed) { return packed - 1; });
    const SavedTensorHooks inner(
        [](const at::Tensor& t) {
          return std::make_pair(t.to(at::kFloat), std::string("float"));
        },
        [](const std::pair<at::Tensor, std::string>& packed) {
          EXPECT_EQ(packed.second, "float");
          return packed.first.to(at::kDouble);
        },
        HookNesting::kThenOuter);
    y = (x * x).sum();
  }
  EXPECT_THAT(outer_types, ElementsAre(at::kFloat, at::kFloat));
  EXPECT_TRUE(at::allclose(grad({y}, {x})[0], 2 * x, 1e-5, 1e-6));
}

TEST(SavedTensorHooks, PackedMayBeAnything) {
  const at::Tensor x = leaf({4});
  const std::string file = testing::TempDir() + "remat_saved_tensor";
  at::Tensor y;
  {
    const SavedTensorHooks hooks(
        [&file](const at::Tensor& t) {
          std::ofstream(file, std::ios::binary)
              .write(static_cast<const char*>(t.data_ptr()),
                     static_cast<std::streamsize>(t.nbytes()));
          return file;
        },
        [](const std::string& name) {
          at::Tensor t = at::empty({4}, at::kDouble);
          std::ifstream(name, std::ios::binary)
              .read(static_cast<char*>(t.data_ptr()),
                    static_cast<std::streamsize>(t.nbytes()));
          return t;
        });
    y = x.sin().sum();
  }
  EXPECT_TRUE(at::equal(grad({y}, {x})[0], x.detach().cos()));
}

TEST(SavedTensorHooks, IdentityMakesNoCycle) {
  const auto alive = std::make_shared<int>(0);
  const at::Tensor x = leaf({4});
  {
    const SavedTensorHooks hooks([alive](const at::Tensor& t) { return t; },
                                 kSame);
    // exp() saves its own output, whose node owns the hook.
    const at::Tensor y = x.exp();
  }
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(SavedTensorHooks, MisuseIsNamed) {
  const at::Tensor x = leaf({4});
  // libtorch's own check.
  EXPECT_THAT(error_of([&] {
                const SavedTensorHooks hooks(
                    [](const at::Tensor& t) { return t.detach().mul_(2); },
                    kSame);
                (x * 2).sin();
              }),
              HasSubstr("modifying its input in place"));
  const auto unpacked = [&x](const auto& unpack) {
    at::Tensor y;
    {
      const SavedTensorHooks hooks(kSame, unpack);
      y = x.sin().sum();
    }
    return error_of([&] { grad({y}, {x}); });
  };
  EXPECT_THAT(unpacked([](const at::Tensor& t) { return t.narrow(0, 0, 2); }),
              HasSubstr("[saved_tensor_hooks] the unpack function returned "
                        "Double[2] on cpu; what was packed is Double[4]"));
  EXPECT_THAT(unpacked([](const at::Tensor& t) { return t.to(at::kFloat); }),
              HasSubstr("Float[4] on cpu; what was packed is Double[4]"));
  EXPECT_THAT(unpacked([](const at::Tensor&) { return at::Tensor(); }),
              HasSubstr("returned an undefined tensor"));
}

class OwnError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

TEST(SavedTensorHooks, ErrorsKeepTheirType) {
  const at::Tensor x = leaf({4});
  {
    const SavedTensorHooks hooks(
        [](const at::Tensor&) -> at::Tensor { throw OwnError("pack"); }, kSame);
    EXPECT_THROW(x.sin(), OwnError);
  }
  at::Tensor y;
  {
    const SavedTensorHooks hooks(kSame, [](const at::Tensor&) -> at::Tensor {
      throw OwnError("unpack");
    });
    y = x.sin().sum();
  }
  EXPECT_THROW(grad({y}, {x}), OwnError);
  // Nothing is left behind.
  EXPECT_NO_THROW(grad({x.sin().sum()}, {x}));
}

TEST(SavedTensorHooks, OtherThreadsHaveTheirOwn) {
  const at::Tensor x = leaf({4});
  int packs = 0;
  const SavedTensorHooks hooks(
      [&packs](const at::Tensor& t) {
        ++packs;
        return t;
      },
      kSame);
  std::thread([&x] { x.sin(); }).join();
  EXPECT_EQ(packs, 0);
  x.sin();
  EXPECT_EQ(packs, 1);
}

TEST(SavedTensorHooks, DoubleBackward) {
  const at::Tensor x = leaf({4});
  const auto second = [&x](const at::Tensor& y) {
    const at::Tensor first = grad({y}, {x}, {}, true, true)[0];
    return grad({first.pow(2).sum()}, {x})[0];
  };
  const at::Tensor plain = second(x.pow(3).sum());
  const SavedTensorHooks hooks([](const at::Tensor& t) { return t.clone(); },
                               kSame);
  EXPECT_TRUE(at::equal(second(x.pow(3).sum()), plain));
}

// What a region drops never reaches the hooks around it; its inputs do. Hooks
// inside are the innermost, and what they save is not the region's.
TEST(SavedTensorHooks, AndRegions) {
  const at::Tensor x = leaf({4});
  std::vector<at::Tensor> offered;
  const auto record = [&offered](const at::Tensor& t) {
    offered.push_back(t.detach());
    return t;
  };
  const auto fn = [](const at::Tensor& t) { return t.sin().exp().tanh(); };
  const at::Tensor plain = grad({fn(x * 2).sum()}, {x})[0];
  at::Tensor y;
  {
    const SavedTensorHooks hooks(record, kSame);
    y = checkpoint(fn, x * 2).sum();
  }
  ASSERT_EQ(offered.size(), 1u);
  EXPECT_TRUE(at::equal(offered[0], x.detach() * 2));
  EXPECT_TRUE(at::equal(grad({y}, {x})[0], plain));
  EXPECT_EQ(offered.size(), 1u);

  offered.clear();
  y = checkpoint(
          [&](const at::Tensor& t) {
            const at::Tensor first = t.sin();
            const SavedTensorHooks hooks(record, kSame);
            return first.exp();
          },
          x * 2)
          .sum();
  EXPECT_EQ(offered.size(), 1u);
  EXPECT_TRUE(
      at::equal(grad({y}, {x})[0], grad({(x * 2).sin().exp().sum()}, {x})[0]));
}

TEST(SavedTensorHooksDisabled, RefusesHooksAndRegions) {
  const at::Tensor x = leaf({4});
  const at::Tensor before =
      checkpoint([](const at::Tensor& t) { return t.sin().exp(); }, x).sum();
  {
    const SavedTensorHooksDisabled disabled("[mine] no hooks here");
    EXPECT_THAT(error_of([] { const SavedTensorHooks hooks(kSame, kSame); }),
                HasSubstr("[mine] no hooks here"));
    EXPECT_THAT(error_of([&] {
                  checkpoint([](const at::Tensor& t) { return t.sin(); }, x);
                }),
                HasSubstr("[mine] no hooks here"));
    {
      const SavedTensorHooksDisabled inner("[inner]");
      EXPECT_THAT(error_of([] { const SavedTensorHooks hooks(kSame, kSame); }),
                  HasSubstr("[inner]"));
    }
    // A region from before is recomputed all the same.
    EXPECT_NO_THROW(grad({before}, {x}));
  }
  EXPECT_NO_THROW(const SavedTensorHooks hooks(kSame, kSame));
  const SavedTensorHooks hooks(kSame, kSame);
  EXPECT_THAT(error_of([] { const SavedTensorHooksDisabled late("[late]"); }),
              HasSubstr("hooks stand in this thread"));
}

}  // namespace
}  // namespace remat
