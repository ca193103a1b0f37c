// Tests that run in several processes: the body of on_ranks() is run by each
// rank, in a process of its own that is this binary with one test.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "remat/distributed/process_group.h"

namespace remat::distributed {

struct RankResult {
  bool passed = false;
  std::string end;     // "exit code 1", "signal 9", "stopped after 60 s"
  std::string output;  // both streams
};

struct RanksOptions {
  int count = 2;
  // After this all ranks are killed, and have failed.
  std::chrono::milliseconds timeout = std::chrono::seconds(120);
  // How long the others may go on once one has failed.
  std::chrono::milliseconds grace = std::chrono::seconds(10);
  // Besides those of the rendezvous.
  std::vector<std::pair<std::string, std::string>> environment = {};
};

// Started by gtest: starts the ranks, waits for all and returns how each ended.
// In a rank: runs the body and ends the process. Call it once in a test, with
// nothing costly before it.
std::vector<RankResult> run_ranks(
    const std::function<void(const Rendezvous&)>& body,
    const RanksOptions& options = {});

// The same with the group connected; a rank that did not pass fails the test,
// and its output is shown.
void on_ranks(const std::function<void(ProcessGroup&)>& body,
              const RanksOptions& options = {});

}  // namespace remat::distributed
