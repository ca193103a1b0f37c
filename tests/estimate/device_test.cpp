#include "remat/estimate/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/estimate/configs.h"

namespace remat::estimate {
namespace {

using ::testing::HasSubstr;

constexpr const char* kCard = R"({"format": "remat-device", "version": 1,
 "name": "card", "memory_bytes": 1000, "memory_bytes_per_second": 1e9,
 "flops_per_second": {"float32": 1e12, "bfloat16": 2e12},
 "host_link_bytes_per_second": 1e8, "matrix_efficiency": 0.5})";

TEST(Device, ComesBackFromItsFile) {
  const Device card = device_from_json(kCard);
  EXPECT_EQ(card.name, "card");
  EXPECT_EQ(card.source, "device");
  EXPECT_EQ(card.memory_bytes, 1000);
  EXPECT_EQ(card.peak_flops(Dtype::kBFloat16), 2e12);
  EXPECT_EQ(card.peak_flops(Dtype::kFloat16), 0);
  EXPECT_EQ(card.host_link_bytes_per_second, 1e8);
  EXPECT_EQ(card.disk_bytes_per_second, 0);
  EXPECT_EQ(card.matrix_efficiency, 0.5);
  EXPECT_EQ(card.memory_efficiency, 0.8);
  EXPECT_FALSE(card.is_cpu);
  for (const Device& device : known_devices()) {
    EXPECT_EQ(to_json(device_from_json(to_json(device))), to_json(device));
  }
}

TEST(Device, ErrorsNameFieldValueAndRemedy) {
  const auto complaint = [](const std::string& part, const std::string& other) {
    return error_of(
        [&] { device_from_json(replaced(kCard, part, other), "card.json"); });
  };
  EXPECT_EQ(complaint("\"version\": 1", "\"version\": 2"),
            "[plan] card.json: version is 2; this remat reads versions up to "
            "1: a newer one wrote the file");
  EXPECT_EQ(complaint("remat-device", "remat-chain"),
            "[plan] card.json: format is \"remat-chain\"; it must be "
            "\"remat-device\"");
  EXPECT_EQ(complaint("\"memory_bytes\": 1000,", ""),
            "[plan] card.json: memory_bytes is absent; it is required");
  EXPECT_EQ(complaint("\"memory_bytes\": 1000", "\"memory_bytes\": 0"),
            "[plan] card.json: memory_bytes is 0; it must be from 1 to 2^50");
  EXPECT_EQ(complaint("1e9", "-1"),
            "[plan] card.json: memory_bytes_per_second is -1; a rate is a "
            "number per second, above 0");
  EXPECT_EQ(complaint("\"float32\": 1e12", "\"float32\": 1e30"),
            "[plan] card.json: flops_per_second: float32 is 1e+30; a rate is "
            "a number per second, at least 0");
  EXPECT_EQ(complaint("{\"float32\": 1e12, \"bfloat16\": 2e12}", "{}"),
            "[plan] card.json: flops_per_second has no rate above 0; give "
            "that of float32, bfloat16 or float16");
  EXPECT_EQ(complaint("{\"float32\": 1e12, \"bfloat16\": 2e12}", "1e12"),
            "[plan] card.json: flops_per_second: expected a JSON object, "
            "found number");
  EXPECT_EQ(complaint("\"float32\"", "\"flaot32\""),
            "[plan] card.json: flops_per_second: unknown field \"flaot32\"; "
            "did you mean float32?");
  EXPECT_EQ(complaint("0.5", "1.5"),
            "[plan] card.json: matrix_efficiency is 1.5; it is a share of the "
            "peak, above 0 and at most 1");
  EXPECT_EQ(complaint("\"matrix_efficiency\"", "\"matrix_efficeincy\""),
            "[plan] card.json: unknown field \"matrix_efficeincy\"; did you "
            "mean matrix_efficiency?");
}

TEST(Device, KnownByName) {
  EXPECT_EQ(find_known_device("a100-40g").memory_bytes, 40'000'000'000);
  EXPECT_THAT(error_of([] { find_known_device("h100"); }),
              HasSubstr("unknown device h100; did you mean h100-80g? Known "
                        "are h100-80g, h200-141g,"));
  EXPECT_THAT(error_of([] { find_known_device("abacus"); }),
              HasSubstr("unknown device abacus. Known are h100-80g"));
}

TEST(Device, KnownOnesAreOfThisWorld) {
  for (const Device& device : known_devices()) {
    SCOPED_TRACE(device.name);
    // Units: gigabytes and teraflops, not one for the other.
    EXPECT_GE(device.memory_bytes, 16'000'000'000);
    EXPECT_LE(device.memory_bytes, 200'000'000'000);
    EXPECT_GE(device.memory_bytes_per_second, 1e11);
    EXPECT_LE(device.memory_bytes_per_second, 1e13);
    EXPECT_GE(device.peak_flops(Dtype::kFloat32), 1e13);
    EXPECT_GE(device.peak_flops(Dtype::kFloat16),
              2 * device.peak_flops(Dtype::kFloat32));
    EXPECT_LE(device.peak_flops(Dtype::kFloat16), 1e15);
    // A link is slower than the memory behind it.
    EXPECT_LT(device.host_link_bytes_per_second,
              device.memory_bytes_per_second);
    EXPECT_NE(device.source, "");
  }
  // Volta has no bfloat16.
  EXPECT_EQ(find_known_device("v100-32g").peak_flops(Dtype::kBFloat16), 0);
}

TEST(Dtype, NamesAndSizes) {
  EXPECT_EQ(bytes_of(Dtype::kFloat32), 4);
  EXPECT_EQ(bytes_of(Dtype::kBFloat16), 2);
  for (const Dtype dtype : kDtypes) {
    EXPECT_EQ(parse_dtype("--dtype", name_of(dtype)), dtype);
  }
  EXPECT_EQ(parse_dtype("--dtype", "bf16"), Dtype::kBFloat16);
  EXPECT_EQ(error_of([] { parse_dtype("--dtype", "flaot32"); }),
            "[plan] --dtype is flaot32; it must be float32, bfloat16 or "
            "float16; did you mean float32?");
}

}  // namespace
}  // namespace remat::estimate
