#include "remat/train/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remat/base/error.h"
#include "remat/base/file.h"

namespace remat::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string refusal(const fs::path& directory, bool overwrite) {
  try {
    check_run_folder(directory, overwrite);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

class RunFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  const fs::path root_ = fs::path(::testing::TempDir()) / "remat_run_folder";
};

TEST_F(RunFolder, NewAndEmptyDirectoriesAreFineAndStayAsTheyAre) {
  EXPECT_EQ(refusal(root_, false), "accepted");
  EXPECT_EQ(refusal(root_ / "a" / "b", false), "accepted");
  EXPECT_FALSE(fs::exists(root_ / "a"));
}

TEST_F(RunFolder, AnotherRunIsRefusedUnlessToBeReplaced) {
  for (const char* name : {"config.json", "model.safetensors"}) {
    write_file(root_ / name, "{}\n");
    EXPECT_THAT(
        refusal(root_, false),
        HasSubstr("holds another run (" + std::string(name) + " is there)"));
    EXPECT_EQ(refusal(root_, true), "accepted");
    fs::remove(root_ / name);
  }
}

TEST_F(RunFolder, ARunWithoutAModelDoesNotStandInTheWay) {
  write_file(root_ / "metrics.jsonl", "{}\n");
  write_file(root_ / "run.toml", "seed = 1\n");
  EXPECT_EQ(refusal(root_, false), "accepted");
}

TEST_F(RunFolder, AFileIsNoDirectory) {
  write_file(root_ / "file", "x");
  EXPECT_THAT(refusal(root_ / "file", true), HasSubstr("is a file"));
  EXPECT_THAT(refusal(root_ / "file" / "below", true),
              HasSubstr("cannot be written"));
}

TEST_F(RunFolder, LineFileEmptiesAndGrowsByLines) {
  const fs::path path = root_ / "metrics.jsonl";
  write_file(path, "old\n");
  LineFile file(path);
  file.append("{\"step\":1}");
  file.append("{\"step\":2}");
  EXPECT_EQ(read_file(path), "{\"step\":1}\n{\"step\":2}\n");
}

TEST_F(RunFolder, LineFileGoesOnUnderAnotherName) {
  write_file(root_ / "metrics.jsonl", "old\n");
  LineFile file(root_ / "unsaved");
  file.append("1");
  file.rename(root_ / "metrics.jsonl");
  file.rename(root_ / "metrics.jsonl");
  file.append("2");
  EXPECT_EQ(read_file(root_ / "metrics.jsonl"), "1\n2\n");
  EXPECT_FALSE(fs::exists(root_ / "unsaved"));
  EXPECT_THROW(file.rename(root_ / "missing" / "metrics.jsonl"), Error);
}

TEST_F(RunFolder, LineFileNamesThePathThatFails) {
  try {
    LineFile file(root_ / "missing" / "metrics.jsonl");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("missing/metrics.jsonl"));
  }
  LineFile full("/dev/full");
  EXPECT_THROW(full.append("{}"), Error);
}

}  // namespace
}  // namespace remat::train
