#include "tests/distributed/ranks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

extern char** environ;

namespace remat::distributed {
namespace {

using Clock = std::chrono::steady_clock;

// Set in the processes that are ranks.
constexpr const char* kRankMark = "REMAT_TEST_IS_RANK";

std::string name_of_this_test() {
  const testing::TestInfo* info =
      testing::UnitTest::GetInstance()->current_test_info();
  return std::string(info->test_suite_name()) + "." + info->name();
}

// A free port below those that the system gives to anybody who asks, Gloo's
// connections among them; processes that run at once begin at different ones.
int free_port() {
  constexpr int kFirst = 15000, kCount = 15000;
  static int next = static_cast<int>(getpid()) * 31;
  for (int tries = 0; tries < kCount; ++tries) {
    const int port = kFirst + (next++ & 0x7fffffff) % kCount;
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    const int bound =
        ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    ::close(socket);
    if (bound == 0) {
      return port;
    }
  }
  throw std::runtime_error("no free port");
}

struct Process {
  pid_t pid = -1;
  std::FILE* output = nullptr;
  bool running = true;
  RankResult result;
};

std::string read_all(std::FILE* file) {
  std::string text;
  std::rewind(file);
  char buffer[4096];
  while (const size_t count = std::fread(buffer, 1, sizeof(buffer), file)) {
    text.append(buffer, count);
  }
  return text;
}

Process start(const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    // What gtest and we were told is not for the ranks.
    const std::string name = text.substr(0, text.find('='));
    const auto same_name = [&](const auto& pair) { return pair.first == name; };
    if (name.rfind("GTEST_", 0) != 0 && name.rfind("TORCHELASTIC_", 0) != 0 &&
        std::none_of(added.begin(), added.end(), same_name)) {
      variables.push_back(text);
    }
  }
  for (const auto& [name, value] : added) {
    variables.push_back(name + "=" + value);
  }
  std::vector<char*> environment;
  for (std::string& variable : variables) {
    environment.push_back(variable.data());
  }
  environment.push_back(nullptr);
  std::string program = "/proc/self/exe";
  std::string filter = "--gtest_filter=" + name_of_this_test();
  std::vector<char*> arguments{program.data(), filter.data(), nullptr};

  Process process;
  process.output = std::tmpfile();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const int file = fileno(process.output);
  posix_spawn_file_actions_adddup2(&actions, file, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, file, STDERR_FILENO);
  const int error = posix_spawn(&process.pid, program.c_str(), &actions,
                                nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw std::runtime_error("posix_spawn failed");
  }
  return process;
}

// Takes note if it has ended.
void look_at(Process& process) {
  int status = 0;
  if (!process.running || waitpid(process.pid, &status, WNOHANG) == 0) {
    return;
  }
  process.running = false;
  RankResult& result = process.result;
  result.passed = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (result.end.empty()) {
    result.end = WIFSIGNALED(status)
                     ? "signal " + std::to_string(WTERMSIG(status))
                     : "exit code " + std::to_string(WEXITSTATUS(status));
  }
}

void wait_for(std::vector<Process>& processes, const RanksOptions& options) {
  const auto begin = Clock::now();
  auto deadline = begin + options.timeout;
  bool one_failed = false;
  bool killed = false;
  while (true) {
    bool running = false;
    for (Process& process : processes) {
      look_at(process);
      running = running || process.running;
      if (!process.running && !process.result.passed && !one_failed) {
        one_failed = true;
        deadline = std::min(deadline, Clock::now() + options.grace);
      }
    }
    if (!running) {
      return;
    }
    if (!killed && Clock::now() > deadline) {
      killed = true;
      for (Process& process : processes) {
        if (process.running) {
          const auto waited = std::chrono::duration_cast<std::chrono::seconds>(
              Clock::now() - begin);
          process.result.end =
              "stopped after " + std::to_string(waited.count()) + " s";
          kill(process.pid, SIGKILL);
        }
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

[[noreturn]] void be_a_rank(
    const std::function<void(const Rendezvous&)>& body) {
  // The parent may be killed; nobody else would end this process.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  bool failed = false;
  try {
    body(rendezvous_from_environment());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank ended by an exception: %s\n", error.what());
    failed = true;
  }
  failed = failed || testing::Test::HasFailure();
  std::fflush(nullptr);
  // Not the rest of the test, which is the parent's.
  std::_Exit(failed ? 1 : 0);
}

}  // namespace

std::vector<RankResult> run_ranks(
    const std::function<void(const Rendezvous&)>& body,
    const RanksOptions& options) {
  if (std::getenv(kRankMark) != nullptr) {
    be_a_rank(body);
  }
  const std::string port = std::to_string(free_port());
  std::vector<Process> processes;
  for (int rank = 0; rank < options.count; ++rank) {
    std::vector<std::pair<std::string, std::string>> variables{
        {kRankMark, "1"},
        {"RANK", std::to_string(rank)},
        {"WORLD_SIZE", std::to_string(options.count)},
        {"MASTER_ADDR", "127.0.0.1"},
        {"MASTER_PORT", port},
        {"GLOO_SOCKET_IFNAME", "lo"},
        // All ranks share these cores.
        {"OMP_NUM_THREADS", "1"}};
    variables.insert(variables.end(), options.environment.begin(),
                     options.environment.end());
    processes.push_back(start(variables));
  }
  wait_for(processes, options);
  std::vector<RankResult> results;
  for (Process& process : processes) {
    process.result.output = read_all(process.output);
    std::fclose(process.output);
    results.push_back(std::move(process.result));
  }
  return results;
}

void on_ranks(const std::function<void(ProcessGroup&)>& body,
              const RanksOptions& options) {
  const auto connected = [&](Rendezvous rendezvous) {
    // Before the ranks are killed, so that one can say what it waited for.
    rendezvous.timeout = options.timeout * 3 / 4;
    ProcessGroup group = ProcessGroup::connect(rendezvous);
    body(group);
    // Nobody's connections close while another rank still uses them.
    group.barrier();
  };
  const std::vector<RankResult> results = run_ranks(connected, options);
  for (size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_TRUE(results[rank].passed)
        << "rank " << rank << ": " << results[rank].end << "\n"
        << results[rank].output;
  }
}

}  // namespace remat::distributed
