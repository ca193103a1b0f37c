#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <set>

#include "remat/base/bytes.h"
#include "remat/base/error.h"
#include "remat/base/file.h"
#include "remat/base/json.h"
#include "remat/base/philox.h"
#include "remat/base/suggest.h"
#include "remat/base/version.h"

namespace remat {
namespace {

using ::testing::HasSubstr;

template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// The known answers of Random123 (kat_vectors, philox4x32, 10 rounds).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                       {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DerivedSeedsDiffer) {
  std::set<uint64_t> seeds;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    for (uint64_t child = 0; child < 100; ++child) {
      seeds.insert(derive_seed(seed, child));
    }
  }
  EXPECT_EQ(seeds.size(), 3000u);
}

TEST(Bytes, AreWrittenAsPeopleReadThem) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1 << 20), "1.00 MiB");
  EXPECT_EQ(format_bytes(int64_t{611} << 20), "611 MiB");
  EXPECT_EQ(format_bytes(int64_t{1310} << 20), "1.28 GiB");
  EXPECT_EQ(format_thousands(-1234567), "-1,234,567");
  EXPECT_EQ(format_thousands(999), "999");
}

TEST(Bytes, AreReadWithTheirUnits) {
  EXPECT_EQ(parse_bytes("900MiB"), int64_t{900} << 20);
  EXPECT_EQ(parse_bytes("4GB"), 4000000000);
  EXPECT_EQ(parse_bytes("1.5 GiB"), int64_t{3} << 29);
  EXPECT_EQ(parse_bytes("12345"), 12345);
  for (const char* bad : {"", "GiB", "4gb", "-1MiB", "nan", "inf", "9EiB",
                          "8388608TiB", "1e3", "4 GiB x"}) {
    EXPECT_THAT(error_of([&] { parse_bytes(bad); }),
                HasSubstr(str("'", bad, "'")))
        << bad;
  }
}

RC_GTEST_PROP(Bytes, AnyTextIsASizeOrAnError, (const std::string& text)) {
  try {
    RC_ASSERT(parse_bytes(text) >= 0);
  } catch (const UsageError&) {
  }
}

TEST(Json, ErrorsTellThePlace) {
  EXPECT_THAT(error_of([] { parse_json("config", "a.json", "{\"x\": 1 2}"); }),
              HasSubstr("[config] a.json: column 9: "));
  EXPECT_THAT(
      error_of([] { parse_json("config", "a.json", "{\n\"x\": tru\n}"); }),
      HasSubstr("a.json: line 2, column "));
  EXPECT_THAT(error_of([] { parse_json("config", "a.json", ""); }),
              HasSubstr("a.json: column 1: "));
  EXPECT_THAT(
      error_of([] { parse_json("config", "a", "{\"x\": 1, \"x\": 2}"); }),
      HasSubstr("the key \"x\" stands twice"));
  EXPECT_THAT(error_of([] { parse_json("config", "a", "{\"x\": 1e999}"); }),
              HasSubstr("[config] a: "));
}

TEST(Json, FieldsAreChecked) {
  const auto value =
      parse_json("config", "a.json",
                 R"({"n": 3, "r": 0.5, "b": true, "s": "text", "z": null,
          "big": 18446744073709551615})");
  const JsonObject object("config", "a.json", value);
  EXPECT_EQ(object.integer("n", 0), 3);
  EXPECT_EQ(object.integer("z", 7), 7);
  EXPECT_FALSE(object.has("z"));
  EXPECT_EQ(object.number("r", 0), 0.5);
  EXPECT_EQ(object.number("n", 0), 3.0);
  EXPECT_TRUE(object.boolean("b", false));
  EXPECT_EQ(object.string("s", ""), "text");
  EXPECT_EQ(error_of([&] { object.integer("r", 0); }),
            "[config] a.json: r is 0.5; it must be a whole number");
  EXPECT_THAT(error_of([&] { object.integer("big", 0); }),
              HasSubstr("big is 18446744073709551615"));
  EXPECT_THAT(error_of([&] { object.boolean("n", false); }),
              HasSubstr("n is 3; it must be true or false"));
  EXPECT_THAT(error_of([&] { JsonObject("config", "a.json", value.at("n")); }),
              HasSubstr("expected a JSON object, found number"));
}

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() /
                 str("remat-file-test-", ::getpid());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  size_t files() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(directory_),
                      std::filesystem::directory_iterator()));
  }

  std::filesystem::path directory_;
};

TEST_F(FileTest, RoundTrip) {
  std::string text = std::string("a\0b\n", 4);
  text += std::string(100000, 'x');
  write_file(directory_ / "file", text);
  EXPECT_EQ(read_file(directory_ / "file"), text);
  write_file(directory_ / "file", "");
  EXPECT_EQ(read_file(directory_ / "file"), "");
  EXPECT_EQ(files(), 1u);
}

TEST_F(FileTest, NothingIsThereBeforeCommit) {
  {
    AtomicFile file(directory_ / "file");
    file.write("half");
  }
  EXPECT_EQ(files(), 0u);
}

TEST_F(FileTest, ErrorsNamePathAndCause) {
  EXPECT_EQ(error_of([&] { read_file(directory_ / "none"); }),
            str("[file] cannot read ", (directory_ / "none").string(),
                ": No such file or directory"));
  EXPECT_THAT(error_of([&] { read_file(directory_); }),
              HasSubstr("it is a directory"));
  EXPECT_THAT(error_of([&] { write_file(directory_ / "no" / "f", "x"); }),
              HasSubstr("cannot write"));
}

TEST_F(FileTest, ALimitReachedLeavesTheOldFile) {
  write_file(directory_ / "file", "old");
  struct rlimit limit {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const struct rlimit small { 1000, limit.rlim_max };
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = error_of(
      [&] { write_file(directory_ / "file", std::string(5000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, HasSubstr("File too large"));
  EXPECT_EQ(read_file(directory_ / "file"), "old");
  EXPECT_EQ(files(), 1u);
}

TEST(Suggest, TheNearestNameThatIsNearEnough) {
  const std::vector<std::string> names{"max-seq-length", "max-steps", "seed"};
  EXPECT_EQ(nearest("max-seq-lenght", names), "max-seq-length");
  EXPECT_EQ(nearest("sede", names), "seed");
  EXPECT_EQ(nearest("max-seq", names), "max-seq-length");
  EXPECT_EQ(nearest("learning-rate", names), "");
  EXPECT_EQ(nearest("", names), "");
  EXPECT_EQ(nearest(std::string(1 << 20, 'x'), names), "");
  EXPECT_EQ(did_you_mean("sed", names, "--"), "; did you mean --seed?");
  EXPECT_EQ(did_you_mean("zzzzzz", names), ".");
}

TEST(Version, IsThreeNumbers) {
  EXPECT_THAT(version(), ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

}  // namespace
}  // namespace remat
