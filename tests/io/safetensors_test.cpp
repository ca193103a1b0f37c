#include "remat/io/safetensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include "remat/base/error.h"
#include "remat/base/file.h"
#include "tests/io/temporary_path.h"

namespace remat::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

void expect_same(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_EQ(got.scalar_type(), want.scalar_type());
  EXPECT_EQ(got.sizes(), want.sizes());
  EXPECT_TRUE(got.is_contiguous());
  EXPECT_TRUE(at::equal(got, want));
}

template <class Fn>
std::string error_of(Fn&& fn) {
  try {
    fn();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Safetensors, EveryDtypeComesBack) {
  const TemporaryPath path("every.safetensors");
  NamedTensors tensors;
  for (const auto dtype :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong,
        at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    tensors.emplace_back(c10::toString(dtype),
                         at::randint(0, 2, {3, 5}).to(dtype));
  }
  write_safetensors(path, tensors, {{"format", "pt"}, {"note", "a \"b\"\n"}});
  const SafetensorsFile file(path);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    names.push_back(name);
    expect_same(file.tensor(name), tensor);
  }
  EXPECT_EQ(file.names(), names);
  EXPECT_EQ(file.metadata().at("note"), "a \"b\"\n");
}

TEST(Safetensors, EmptyAndZeroDimensionalTensors) {
  const TemporaryPath path("empty.safetensors");
  const NamedTensors tensors{
      {"empty", at::empty({0})},
      {"scalar", at::full({}, 2.5, at::kDouble)},
      {"flat", at::empty({4, 0, 3}, at::kLong)},
      {"ends", at::arange(3)},
      {"empty too", at::empty({2, 0}, at::kBool)},
  };
  write_safetensors(path, tensors);
  const SafetensorsFile file(path);
  for (const auto& [name, tensor] : tensors) {
    expect_same(file.tensor(name), tensor);
  }
  EXPECT_THAT(file.metadata(), IsEmpty());
}

TEST(Safetensors, NoTensorsAtAll) {
  const TemporaryPath path("none.safetensors");
  write_safetensors(path, {});
  EXPECT_THAT(SafetensorsFile(path).names(), IsEmpty());
}

TEST(Safetensors, AnyStridesAreStoredContiguous) {
  const TemporaryPath path("strides.safetensors");
  const at::Tensor base = at::randn({4, 6}).requires_grad_(true);
  const NamedTensors tensors{{"transposed", base.t()},
                             {"every second", base.slice(1, 0, 6, 2)},
                             {"expanded", at::randn({1, 3}).expand({5, 3})}};
  write_safetensors(path, tensors);
  const SafetensorsFile file(path);
  for (const auto& [name, tensor] : tensors) {
    expect_same(file.tensor(name), tensor.detach());
  }
}

TEST(Safetensors, SpecialFloatsAreKeptBitForBit) {
  const TemporaryPath path("special.safetensors");
  const float inf = std::numeric_limits<float>::infinity();
  const at::Tensor want =
      at::tensor({-0.0f, inf, -inf, std::numeric_limits<float>::quiet_NaN(),
                  std::numeric_limits<float>::denorm_min()});
  write_safetensors(path, {{"x", want}});
  const at::Tensor got = SafetensorsFile(path).tensor("x");
  EXPECT_EQ(std::memcmp(got.data_ptr(), want.data_ptr(), want.nbytes()), 0);
}

// Readers that map the file view the bytes as elements.
TEST(Safetensors, EachTensorIsAligned) {
  const TemporaryPath path("aligned.safetensors");
  write_safetensors(path, {{"bytes", at::ones({3}, at::kByte)},
                           {"doubles", at::ones({2}, at::kDouble)},
                           {"halves", at::ones({5}, at::kHalf)}});
  EXPECT_THAT(SafetensorsFile(path).names(),
              ElementsAre("bytes", "doubles", "halves"));
  const std::string bytes = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  EXPECT_EQ(length % 8, 0u);
  const std::string header = bytes.substr(8, length);
  EXPECT_THAT(header, HasSubstr("\"doubles\":{\"data_offsets\":[0,16]"));
  EXPECT_THAT(header, HasSubstr("\"halves\":{\"data_offsets\":[16,26]"));
  EXPECT_THAT(header, HasSubstr("\"bytes\":{\"data_offsets\":[26,29]"));
}

TEST(Safetensors, HuggingFaceFileIsRead) {
  const SafetensorsFile file(std::filesystem::path(REMAT_GOLDEN_DIR) /
                             "bigbird_cls_train" / "model.safetensors");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_TRUE(file.has("classifier.out_proj.bias"));
  EXPECT_FALSE(file.has("classifier.out_proj"));
  EXPECT_EQ(file.tensor("classifier.out_proj.weight").sizes(),
            (std::vector<int64_t>{3, 64}));
}

TEST(Safetensors, AbsentNameSuggestsASimilarOne) {
  const TemporaryPath path("similar.safetensors");
  write_safetensors(path, {{"encoder.weight", at::ones({1})}});
  const SafetensorsFile file(path);
  EXPECT_EQ(error_of([&] { file.tensor("encoder.wieght"); }),
            "[safetensors] " + path.string() +
                ": there is no tensor \"encoder.wieght\"; there is "
                "\"encoder.weight\"");
  EXPECT_EQ(
      error_of([&] { file.tensor("pooler"); }),
      "[safetensors] " + path.string() + ": there is no tensor \"pooler\"");
}

TEST(Safetensors, WriterRefusesWhatTheFormatCannotHold) {
  const TemporaryPath path("refused.safetensors");
  const auto error = [&](const std::string& name, const at::Tensor& tensor) {
    return error_of([&] { write_safetensors(path, {{name, tensor}}); });
  };
  EXPECT_EQ(error("z", at::ones({2}, at::kComplexFloat)),
            "[safetensors] cannot write " + path.string() +
                ": tensor \"z\" has dtype ComplexFloat, which the format "
                "cannot hold; convert it first");
  EXPECT_THAT(error("u", at::Tensor()), HasSubstr("\"u\" is undefined"));
  EXPECT_THAT(error("s", at::eye(3).to_sparse()), HasSubstr("\"s\" is sparse"));
  EXPECT_THAT(error("__metadata__", at::ones({1})), HasSubstr("keeps for"));
  EXPECT_THAT(error("\xff", at::ones({1})), HasSubstr("not UTF-8"));
  EXPECT_THAT(
      error_of([&] {
        write_safetensors(path, {{"a", at::ones({1})}, {"a", at::ones({1})}});
      }),
      HasSubstr("\"a\" is given twice"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Safetensors, WriterLeavesTheOldFileIfItFails) {
  const TemporaryPath path("old.safetensors");
  write_safetensors(path, {{"a", at::ones({1})}});
  EXPECT_THROW(write_safetensors(path, {{"a", at::Tensor()}}), UsageError);
  EXPECT_TRUE(SafetensorsFile(path).has("a"));
}

TEST(Safetensors, WriterNamesAMissingDirectory) {
  try {
    write_safetensors("/nonexistent/x.safetensors", {});
    FAIL() << "wrote into a missing directory";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nonexistent/x.safetensors: No such"));
  }
}

}  // namespace
}  // namespace remat::io
