#include "remat/kernels/dropout.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "remat/base/error.h"
#include "remat/base/philox.h"
#include "remat/kernels/dropout_kernel.h"
#include "remat/kernels/parallel.h"

namespace remat::kernels {
namespace {

// Elements that a thread takes at least: some ten microseconds of work.
constexpr int64_t kGrain = 16384;

void check(double p) {
  if (!(p > 0.0 && p < 1.0)) {
    fail_usage("dropout", "p is ", p, ", expected 0 < p < 1");
  }
}

void check(const at::Tensor& x, double p) {
  check(p);
  if (!x.defined()) fail_usage("dropout", "x is undefined");
  const at::ScalarType type = x.scalar_type();
  if (type != at::kFloat && type != at::kDouble && type != at::kBFloat16 &&
      type != at::kHalf) {
    fail_usage("dropout", "x has dtype ", type,
               ", expected float, double, bfloat16 or half");
  }
}

// Words from this one on are kept.
uint64_t threshold_of(double p) {
  return static_cast<uint64_t>(std::round(p * 4294967296.0));
}

template <class T>
at::Tensor run(const at::Tensor& x, double p, uint64_t seed) {
  const at::Tensor source = x.contiguous();
  at::Tensor target = at::empty(x.sizes(), source.options());
  const DropoutMask mask{seed, threshold_of(p)};
  const T scale = static_cast<T>(1.0 / (1.0 - p));
  const T* from = source.data_ptr<T>();
  T* to = target.data_ptr<T>();
  const auto kernel = dropout_kernel<T>();
  const int64_t size = source.numel();
  // Counters of four elements are what is divided between threads.
  at::parallel_for(
      0, (size + 3) / 4, kGrain / 4, [&](int64_t begin, int64_t end) {
        kernel(mask, scale, from, to, 4 * begin, std::min(4 * end, size));
      });
  return target;
}

// The high and the low word of 32-bit words (in int64) times a constant. In
// halves, so that no product leaves int64.
std::array<at::Tensor, 2> multiply(const at::Tensor& words,
                                   int64_t multiplier) {
  const at::Tensor low = words * (multiplier & 0xFFFF);
  const at::Tensor high =
      words * (multiplier >> 16) + low.bitwise_right_shift(16);
  return {high.bitwise_right_shift(16),
          high.bitwise_and(0xFFFF).bitwise_left_shift(16).bitwise_or(
              low.bitwise_and(0xFFFF))};
}

// The words of Philox for the first count elements, in int64.
at::Tensor philox_words(int64_t count, uint64_t seed, at::Device device) {
  const at::Tensor counter =
      at::arange((count + 3) / 4, at::TensorOptions(at::kLong).device(device));
  std::array<at::Tensor, 4> word = {
      counter.bitwise_and(int64_t{0xFFFFFFFF}), counter.bitwise_right_shift(32),
      at::zeros_like(counter), at::zeros_like(counter)};
  PhiloxKey key = philox_key(seed);
  for (int round = 0; round < 10; ++round) {
    const auto product0 = multiply(word[0], 0xD2511F53);
    const auto product1 = multiply(word[2], 0xCD9E8D57);
    word = {product1[0].bitwise_xor(word[1]).bitwise_xor(int64_t{key[0]}),
            product1[1],
            product0[0].bitwise_xor(word[3]).bitwise_xor(int64_t{key[1]}),
            product0[1]};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return at::stack(word, 1).view({-1}).slice(0, 0, count);
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, double p, uint64_t seed) {
  check(x, p);
  if (!x.device().is_cpu()) return dropout_aten(x, p, seed);
  const at::Tensor plain = x.detach();
  switch (x.scalar_type()) {
    case at::kFloat:
      return run<float>(plain, p, seed);
    case at::kDouble:
      return run<double>(plain, p, seed);
    default:
      return run<float>(plain.to(at::kFloat), p, seed).to(x.scalar_type());
  }
}

at::Tensor dropout_aten(const at::Tensor& x, double p, uint64_t seed) {
  check(x, p);
  const at::ScalarType type =
      x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor keep = philox_words(x.numel(), seed, x.device())
                              .ge(static_cast<int64_t>(threshold_of(p)))
                              .view(x.sizes());
  // The factor is rounded to the dtype first, as in the kernel.
  const at::Tensor factors = keep.to(type) * (1.0 / (1.0 - p));
  return (x.detach().contiguous().to(type) * factors).to(x.scalar_type());
}

at::Tensor dropout_mask_reference(at::IntArrayRef sizes, double p,
                                  uint64_t seed) {
  check(p);
  at::Tensor mask = at::empty(sizes, at::kFloat);
  float* data = mask.data_ptr<float>();
  for (int64_t i = 0; i < mask.numel(); ++i) {
    const uint64_t counter = static_cast<uint64_t>(i) / 4;
    const PhiloxCounter words =
        philox4x32({static_cast<uint32_t>(counter),
                    static_cast<uint32_t>(counter >> 32), 0, 0},
                   philox_key(seed));
    data[i] = words[i % 4] >= threshold_of(p) ? 1.0f : 0.0f;
  }
  return mask;
}

}  // namespace remat::kernels
