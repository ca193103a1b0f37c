#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <string>

#include "remat/base/error.h"
#include "remat/kernels/block_attention_kernel.h"
#include "tests/kernels/attention_cases.h"

namespace remat::kernels {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const AttentionCase& c) {
  try {
    block_sparse_attention(c.query, c.key, c.value, c.layout, c.options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing thrown";
}

class AttentionMisuse : public ::testing::Test {
 protected:
  AttentionCase c = random_case({2, 3, 4, 4, 10}, 1);
};

TEST_F(AttentionMisuse, Shapes) {
  c.key = at::randn({2, 10, 3, 5}, at::kDouble);
  EXPECT_THAT(error_of(c),
              AllOf(HasSubstr("[block_sparse_attention] key"),
                    HasSubstr("[2, 10, 3, 5]"), HasSubstr("[2, 10, 3, 4]")));
  c.query = at::randn({10, 3, 4}, at::kDouble);
  EXPECT_THAT(error_of(c), AllOf(HasSubstr("query has shape [10, 3, 4]"),
                                 HasSubstr("[batch, length, heads, head_dim")));
  c.query = at::randn({2, 10, 3, 0}, at::kDouble);
  EXPECT_THAT(error_of(c), HasSubstr("query has shape [2, 10, 3, 0]"));
}

TEST_F(AttentionMisuse, LayoutOfAnotherModel) {
  c.layout = std::make_shared<const BlockLayout>(BlockLayout::dense(4, 2, 3));
  EXPECT_THAT(error_of(c), HasSubstr("3 heads; the layout is for 2"));
  c.layout = std::make_shared<const BlockLayout>(BlockLayout::dense(4, 3, 2));
  EXPECT_THAT(error_of(c), AllOf(HasSubstr("length 10"), HasSubstr("5 to 8")));
  c.layout = std::make_shared<const BlockLayout>(BlockLayout::dense(4, 3, 4));
  EXPECT_THAT(error_of(c), HasSubstr("13 to 16"));
  c.layout = nullptr;
  EXPECT_THAT(error_of(c), HasSubstr("there is no layout"));
}

TEST_F(AttentionMisuse, Types) {
  c.value = c.value.detach().to(at::kFloat);
  EXPECT_THAT(error_of(c), AllOf(HasSubstr("value has dtype Float"),
                                 HasSubstr("query has dtype Double")));
  c.value = at::Tensor();
  EXPECT_THAT(error_of(c), HasSubstr("value is undefined"));
  c.query = at::ones({2, 10, 3, 4}, at::kLong);
  EXPECT_THAT(error_of(c), HasSubstr("query has dtype Long"));
  c.query = at::Tensor();
  EXPECT_THAT(error_of(c), HasSubstr("query is undefined"));
}

TEST_F(AttentionMisuse, Options) {
  c.options.key_bias = at::zeros({2, 9}, at::kDouble);
  EXPECT_THAT(error_of(c), AllOf(HasSubstr("key_bias has shape [2, 9]"),
                                 HasSubstr("[batch, length] = [2, 10]")));
  c.options.key_bias = at::zeros({2, 10}, at::kBool);
  EXPECT_THAT(error_of(c), HasSubstr("key_bias has dtype Bool"));
  c.options.key_bias = at::Tensor();
  c.options.query_scale = at::zeros({10}, at::kDouble);
  EXPECT_THAT(error_of(c), HasSubstr("query_scale has shape [10]"));
  c.options.query_scale = at::Tensor();
  c.options.scale = std::numeric_limits<double>::infinity();
  EXPECT_THAT(error_of(c), HasSubstr("scale is inf"));
}

// Passes everything on to the allocator of libtorch, and adds up the sizes.
// Releases of libtorch differ in whether allocate is const and whether there is
// copy_data: hence no `override`.
class Recorder : public c10::Allocator {
 public:
  explicit Recorder(c10::Allocator* inner) : inner_(inner) {}
  at::DataPtr allocate(size_t size) const {
    total_ += size;
    return inner_->allocate(size);
  }
  at::DataPtr allocate(size_t size) {
    return static_cast<const Recorder*>(this)->allocate(size);
  }
  void copy_data(void* to, const void* from, size_t size) const {
    std::memcpy(to, from, size);
  }
  size_t total() const { return total_; }

 private:
  c10::Allocator* inner_;
  mutable std::atomic<size_t> total_{0};
};

// Bytes of all tensors made in forward and backward.
size_t bytes_of(int64_t length) {
  const auto c = random_case({1, 1, 8, 16, length}, 2, at::kFloat);
  c10::Allocator* before = c10::GetCPUAllocator();
  Recorder recorder(before);
  c10::SetCPUAllocator(&recorder, 100);
  {
    const at::Tensor output =
        block_sparse_attention(c.query, c.key, c.value, c.layout, c.options);
    torch::autograd::grad({output}, {c.query, c.key, c.value}, {c.gradient});
  }
  c10::SetCPUAllocator(before, 100);
  return recorder.total();
}

TEST(AttentionMemory, IsLinearInTheLength) {
  const size_t rows = sizeof(float) * 8 * 4096;
  const size_t bytes = bytes_of(4096);
  // The output, two statistics of eight, and three gradients; and what tasks
  // need for a moment: tiles of forward on each thread, the head of backward.
  const auto scratch = static_cast<size_t>(
      at::get_num_threads() * attention_scratch(8, kAttentionTile) +
      attention_scratch(8, 4096));
  EXPECT_GE(bytes, 4 * rows);
  EXPECT_LE(bytes, 5 * rows + sizeof(float) * scratch);
  EXPECT_LE(bytes_of(8192), 2 * bytes + 4096);
}

}  // namespace
}  // namespace remat::kernels
