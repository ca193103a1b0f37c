// scripts/get-data without a network: apt is replaced by small scripts.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>

#include "remat/base/file.h"
#include "tests/data/thrown_text.h"

namespace remat::data {
namespace {

struct Result {
  int status = -1;
  std::string output;  // of both streams
};

Result get_data(const std::string& arguments, const std::string& path = "") {
  const std::string command =
      (path.empty() ? "" : "PATH='" + path + "':\"$PATH\" ") +
      REMAT_GOLDEN_DIR "/../../scripts/get-data " + arguments + " 2>&1";
  Result result;
  FILE* pipe = ::popen(command.c_str(), "r");
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) {
    result.output.append(buffer, got);
  }
  result.status = WEXITSTATUS(::pclose(pipe));
  return result;
}

bool contains(const Result& result, const std::string& text) {
  return result.output.find(text) != std::string::npos;
}

// A complete data set of one page a section and split.
void write_small_data(const std::filesystem::path& directory) {
  for (const std::string split : {"train", "valid", "test"}) {
    std::string pages, summaries;
    for (const std::string section : {"1", "3", "5", "7", "8"}) {
      const std::string name = "\"name\": \"" + split + "-" + section + "\"}\n";
      pages +=
          "{\"text\": \"NAME\\n\", \"label\": \"" + section + "\", " + name;
      summaries += "{\"text\": \"x\", \"summary\": \"y\", " + name;
    }
    write_file(directory / (split + ".jsonl"), pages);
    write_file(directory / ("summary." + split + ".jsonl"), summaries);
  }
  write_file(directory / "source.txt", "manpages 6.03-2\n");
}

void write_program(const std::filesystem::path& path, const std::string& body) {
  write_file(path, "#!/bin/sh\n" + body + "\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

TEST(GetData, ExplainsItself) {
  const Result help = get_data("--help");
  EXPECT_EQ(help.status, 0);
  EXPECT_TRUE(contains(help, "usage: scripts/get-data manpages"));
  const std::pair<const char*, const char*> cases[] = {
      {"", "[get-data] which data? There is: manpages"},
      {"books", "[get-data] unknown data: books. There is: manpages"},
      {"manpages --quick", "[get-data] Unknown option: quick"},
      {"--check /nowhere", "[get-data] there is no directory /nowhere"}};
  for (const auto& [arguments, text] : cases) {
    const Result result = get_data(arguments);
    EXPECT_EQ(result.status, 2) << arguments;
    EXPECT_TRUE(contains(result, text)) << result.output;
    EXPECT_TRUE(contains(result, "usage:")) << result.output;
  }
}

TEST(GetData, ChecksADirectory) {
  const TemporaryDirectory directory;
  const std::string path = directory.path().string();
  EXPECT_TRUE(contains(get_data("--check " + path), "is not complete"));
  write_small_data(path);
  const Result good = get_data("--check " + path);
  EXPECT_EQ(good.status, 0) << good.output;
  EXPECT_TRUE(contains(good, "train.jsonl              1     1"));
  // What is complete is not made again.
  EXPECT_TRUE(contains(get_data("manpages --output " + path), "is complete"));

  const std::string train = read_file(directory.path() / "train.jsonl");
  write_file(directory.path() / "train.jsonl",
             train + "{\"text\": \"a\x01\", \"label\": \"1\"}\n");
  Result bad = get_data("--check " + path);
  EXPECT_EQ(bad.status, 1);
  EXPECT_TRUE(contains(bad, "train.jsonl:6: expected {\"text\"")) << bad.output;
  write_file(directory.path() / "train.jsonl", train);
  write_file(directory.path() / "test.jsonl", train);
  bad = get_data("--check " + path);
  EXPECT_EQ(bad.status, 1);
  EXPECT_TRUE(contains(bad, "test.jsonl:1: the page train-1 is in train too"))
      << bad.output;
}

TEST(GetData, SaysWhatAptLacks) {
  const TemporaryDirectory directory;
  const std::string programs = directory.path() / "bin";
  make_directories(programs);
  const std::string run =
      "manpages --output " + (directory.path() / "out").string();
  write_program(programs + "/apt-cache", "exit 0");
  Result result = get_data(run, programs);
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result, "apt knows only 0 of")) << result.output;
  EXPECT_TRUE(contains(result, "apt-get update")) << result.output;

  // Every package is known, but there is no network.
  write_program(programs + "/apt-cache",
                "shift; for p; do echo \"$p:\"; echo '  Candidate: 1'; done");
  write_program(programs + "/apt-get",
                "echo 'E: Temporary failure resolving'; exit 100");
  result = get_data(run, programs);
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result, "E: Temporary failure resolving"))
      << result.output;
  EXPECT_TRUE(std::filesystem::is_empty(directory.path() / "out"));
}

}  // namespace
}  // namespace remat::data
