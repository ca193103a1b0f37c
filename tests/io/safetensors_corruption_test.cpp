// Files that lie: each must end in an error that names file and tensor, never
// in a crash, a hang or a huge allocation.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "remat/base/error.h"
#include "remat/base/file.h"
#include "remat/io/safetensors.h"
#include "tests/io/temporary_path.h"

namespace remat::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// The header length, the header, and data of the bytes 0.
std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + std::string(data_bytes, '\0');
}

std::string length_alone(uint64_t length, const std::string& rest) {
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + rest;
}

std::string tensor(const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return R"({"x":{"dtype":)" + dtype + R"(,"shape":)" + shape +
         R"(,"data_offsets":)" + offsets + "}}";
}

std::string pair(const std::string& first, const std::string& second) {
  const std::string start = R"({"dtype":"U8","shape":[4],"data_offsets":)";
  return "{\"x\":" + start + first + "},\"y\":" + start + second + "}}";
}

struct Corruption {
  std::string name;
  std::string bytes;
  std::string error;
};

void PrintTo(const Corruption& corruption, std::ostream* out) {
  *out << corruption.name;
}

std::vector<Corruption> corruptions() {
  const std::string many_dimensions = [] {
    std::string shape = "[1";
    for (int i = 0; i < 64; ++i) {
      shape += ",1";
    }
    return shape + "]";
  }();
  return {
      {"empty_file", "", "the file has 0 bytes"},
      {"seven_bytes", std::string(7, '\0'), "the file has 7 bytes"},
      {"length_past_end", length_alone(100, "{}"),
       "the header length is 100, but only 2 bytes follow"},
      {"length_huge", length_alone(UINT64_MAX, "{}"),
       "the header length is 18446744073709551615, more than 100000000"},
      {"length_just_too_long", length_alone(100'000'001, "{}"),
       "the header length is 100000001, more than 100000000"},
      {"length_zero", length_alone(0, ""), "does not start with '{'"},
      {"pickle", file_of("\x80\x02}q", 10), "not a safetensors file"},
      {"json_cut", file_of("{\"x\":{", 0), "header: column 7: broken JSON"},
      {"json_not_utf8", file_of("{\"\xff\":1}", 0), "header: column 3"},
      {"repeated_name", file_of(R"({"x":1,"x":2})", 0), "\"x\" stands twice"},
      {"entry_no_object", file_of(R"({"x":1})", 0),
       "tensor \"x\" is described by number"},
      {"no_dtype", file_of(R"({"x":{"shape":[],"data_offsets":[0,0]}})", 0),
       "tensor \"x\" has no dtype"},
      {"no_shape", file_of(R"({"x":{"dtype":"U8","data_offsets":[0,0]}})", 0),
       "tensor \"x\" has no shape"},
      {"no_offsets", file_of(R"({"x":{"dtype":"U8","shape":[0]}})", 0),
       "tensor \"x\" has no data_offsets"},
      {"dtype_unknown", file_of(tensor("\"F8_E4M3\"", "[4]", "[0,4]"), 4),
       "tensor \"x\" has dtype \"F8_E4M3\"; known are F64, F32, F16"},
      {"dtype_number", file_of(tensor("32", "[4]", "[0,4]"), 4),
       "tensor \"x\" has dtype 32; known are"},
      {"shape_negative", file_of(tensor("\"U8\"", "[-4]", "[0,4]"), 4),
       "tensor \"x\" has -4 in shape"},
      {"shape_fraction", file_of(tensor("\"U8\"", "[4.0]", "[0,4]"), 4),
       "tensor \"x\" has 4.0 in shape"},
      {"shape_overflow",
       file_of(tensor("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0),
       "tensor \"x\" has shape [4294967296,4294967296], more than 2^63 bytes"},
      {"shape_overflow_empty",
       file_of(tensor("\"F32\"", "[0,4294967296,4294967296]", "[0,0]"), 0),
       "more than 2^63 bytes"},
      {"shape_beyond_64_bits",
       file_of(tensor("\"U8\"", "[18446744073709551616]", "[0,0]"), 0),
       "tensor \"x\" has 1.84467"},
      {"shape_no_array", file_of(tensor("\"U8\"", "4", "[0,4]"), 4),
       "tensor \"x\" has shape 4; it must be an array"},
      {"shape_too_deep", file_of(tensor("\"U8\"", many_dimensions, "[0,1]"), 1),
       "tensor \"x\" has 65 dimensions; at most 64"},
      {"offsets_past_end", file_of(tensor("\"U8\"", "[8]", "[0,8]"), 4),
       "tensor \"x\" has data_offsets [0,8] outside of the 4 bytes"},
      {"offsets_reversed", file_of(tensor("\"U8\"", "[0]", "[4,0]"), 4),
       "tensor \"x\" has data_offsets [4,0] outside"},
      {"offsets_one", file_of(tensor("\"U8\"", "[4]", "[4]"), 4),
       "data_offsets [4]; they must be [begin, end]"},
      {"offsets_negative", file_of(tensor("\"U8\"", "[4]", "[-4,0]"), 4),
       "tensor \"x\" has -4 in data_offsets"},
      {"size_mismatch", file_of(tensor("\"F32\"", "[2]", "[0,4]"), 4),
       "tensor \"x\" has 4 bytes in data_offsets, but F32 of shape [2] takes "
       "8"},
      {"overlap", file_of(pair("[0,4]", "[2,6]"), 6),
       "tensor \"y\" starts at byte 2, inside of \"x\", which ends at 4"},
      {"hole", file_of(pair("[0,4]", "[6,10]"), 10),
       "tensor \"y\" starts at byte 6, but bytes from 4 on belong to no"},
      {"appended", file_of(tensor("\"U8\"", "[4]", "[0,4]"), 5),
       "the tensors end at byte 4 of the data, which has 5"},
      {"metadata_no_object", file_of(R"({"__metadata__":[]})", 0),
       "__metadata__ is array; it must be an object of strings"},
      {"metadata_no_string", file_of(R"({"__metadata__":{"a":1}})", 0),
       "__metadata__ has \"a\": 1; it must be a string"},
  };
}

class CorruptedSafetensors : public testing::TestWithParam<Corruption> {};

TEST_P(CorruptedSafetensors, ErrorNamesFileAndValue) {
  const TemporaryPath path(GetParam().name + ".safetensors");
  write_file(path, GetParam().bytes);
  try {
    const SafetensorsFile file(path);
    FAIL() << "accepted the file";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                AllOf(StartsWith("[safetensors] " + path.string() + ": "),
                      HasSubstr(GetParam().error)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, CorruptedSafetensors,
                         testing::ValuesIn(corruptions()),
                         [](const auto& info) { return info.param.name; });

TEST(SafetensorsErrors, BoolBytesAreZeroOrOne) {
  const TemporaryPath path("bool.safetensors");
  std::string bytes = file_of(tensor("\"BOOL\"", "[3]", "[0,3]"), 3);
  bytes.back() = 2;
  write_file(path, bytes);
  const SafetensorsFile file(path);
  try {
    file.tensor("x");
    FAIL() << "accepted the byte 2";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("tensor \"x\" has byte 2 at element 2"));
  }
}

TEST(SafetensorsErrors, WhatIsNoFile) {
  const auto error_of = [](const std::filesystem::path& path) -> std::string {
    try {
      const SafetensorsFile file(path);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of("/nonexistent.safetensors"),
            "[safetensors] cannot read /nonexistent.safetensors: No such file "
            "or directory");
  EXPECT_EQ(error_of("/tmp"),
            "[safetensors] cannot read /tmp: it is a directory");
  EXPECT_EQ(error_of("/dev/null"),
            "[safetensors] cannot read /dev/null: it is not a regular file");
}

TEST(SafetensorsErrors, FileCutWhileOpen) {
  const TemporaryPath path("cut.safetensors");
  write_safetensors(path, {{"x", at::ones({1000})}});
  const SafetensorsFile file(path);
  std::filesystem::resize_file(path, 500);
  EXPECT_THROW(file.tensor("x"), Error);
}

// Unknown fields, as in the reference implementation, and misaligned data.
TEST(SafetensorsErrors, WhatIsUnusualButAllowed) {
  const TemporaryPath path("unusual.safetensors");
  write_file(path,
             file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                     R"("b":{"dtype":"F32","shape":[],"data_offsets":[1,5],)"
                     R"("later":[]},"__metadata__":null}   )",
                     5));
  const SafetensorsFile file(path);
  EXPECT_EQ(file.tensor("b").item<float>(), 0.0f);
}

TEST(SafetensorsErrors, NoCorruptionCrashes) {
  const TemporaryPath path("random.safetensors");
  write_safetensors(path,
                    {{"weight", at::ones({3, 4})},
                     {"mask", at::ones({5}, at::kBool)},
                     {"empty", at::empty({0, 2}, at::kLong)},
                     {"step", at::ones({}, at::kLong)}},
                    {{"format", "pt"}});
  const std::string original = read_file(path);
  const bool passed = rc::check("a changed file is refused or read", [&] {
    std::string bytes = original;
    const int changes = *rc::gen::inRange(1, 5);
    for (int i = 0; i < changes; ++i) {
      const size_t at = *rc::gen::inRange<size_t>(0, bytes.size());
      // Digits and brackets get further than arbitrary bytes.
      bytes[at] = *rc::gen::oneOf(
          rc::gen::elementOf(std::string("0123456789[]{},:\"- ")),
          rc::gen::arbitrary<char>());
    }
    if (*rc::gen::inRange(0, 4) == 0) {
      bytes.resize(*rc::gen::inRange<size_t>(0, bytes.size() * 2));
    }
    write_file(path, bytes);
    try {
      const SafetensorsFile file(path);
      for (const std::string& name : file.names()) {
        const at::Tensor tensor = file.tensor(name);
        RC_ASSERT(tensor.nbytes() <= bytes.size());
      }
    } catch (const UsageError& error) {
      RC_ASSERT(std::string(error.what()).find(path.string()) !=
                std::string::npos);
    }
  });
  EXPECT_TRUE(passed);
}

}  // namespace
}  // namespace remat::io
