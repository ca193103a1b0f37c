#include "remat/distributed/process_group.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "remat/base/error.h"
#include "tests/distributed/error_text.h"
#include "tests/distributed/ranks.h"

namespace remat::distributed {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Sets variables, or removes those without a value, until the end.
class Environment {
 public:
  explicit Environment(
      const std::map<std::string, std::optional<std::string>>& variables) {
    for (const auto& [name, value] : variables) {
      const char* old = std::getenv(name.c_str());
      before_[name] =
          old == nullptr ? std::nullopt : std::optional<std::string>(old);
      set(name, value);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_) {
      set(name, value);
    }
  }

 private:
  static void set(const std::string& name,
                  const std::optional<std::string>& value) {
    if (value) {
      ::setenv(name.c_str(), value->c_str(), 1);
    } else {
      ::unsetenv(name.c_str());
    }
  }

  std::map<std::string, std::optional<std::string>> before_;
};

std::map<std::string, std::optional<std::string>> environment(
    const std::map<std::string, std::optional<std::string>>& changes = {}) {
  std::map<std::string, std::optional<std::string>> variables{
      {"RANK", "1"},
      {"WORLD_SIZE", "4"},
      {"MASTER_ADDR", "trainer-0"},
      {"MASTER_PORT", "29511"},
      {"TORCHELASTIC_USE_AGENT_STORE", std::nullopt},
      {"TORCHELASTIC_RESTART_COUNT", std::nullopt},
      {"GLOO_SOCKET_IFNAME", std::nullopt}};
  for (const auto& [name, value] : changes) {
    variables[name] = value;
  }
  return variables;
}

TEST(Rendezvous, IsReadFromTheEnvironment) {
  {
    const Environment set(environment());
    const Rendezvous rendezvous = rendezvous_from_environment();
    EXPECT_EQ(rendezvous.rank, 1);
    EXPECT_EQ(rendezvous.world_size, 4);
    EXPECT_EQ(rendezvous.master_address, "trainer-0");
    EXPECT_EQ(rendezvous.master_port, 29511);
    EXPECT_TRUE(rendezvous.rank_0_hosts);
    EXPECT_EQ(rendezvous.interface, "");
  }
  const Environment torchrun(
      environment({{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                   {"TORCHELASTIC_RESTART_COUNT", "2"},
                   {"GLOO_SOCKET_IFNAME", "eth1"}}));
  const Rendezvous rendezvous = rendezvous_from_environment();
  EXPECT_FALSE(rendezvous.rank_0_hosts);
  EXPECT_EQ(rendezvous.attempt, 2);
  EXPECT_EQ(rendezvous.interface, "eth1");
}

TEST(Rendezvous, ErrorsNameTheVariable) {
  const auto error = [](const std::string& name,
                        const std::optional<std::string>& value) {
    const Environment set(environment({{name, value}}));
    return text_of<UsageError>([] { rendezvous_from_environment(); });
  };
  for (const char* name :
       {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_THAT(error(name, std::nullopt),
                AllOf(HasSubstr("[process_group] the environment has no "),
                      HasSubstr(name), HasSubstr("torchrun --no-python")));
  }
  EXPECT_EQ(error("RANK", "4"),
            "[process_group] RANK is \"4\"; it must be a number from 0 to 3");
  EXPECT_THAT(error("RANK", "-1"), HasSubstr("RANK is \"-1\""));
  EXPECT_THAT(error("RANK", "one"), HasSubstr("RANK is \"one\""));
  EXPECT_THAT(error("RANK", "1 "), HasSubstr("RANK is \"1 \""));
  EXPECT_THAT(error("WORLD_SIZE", "0"), HasSubstr("WORLD_SIZE is \"0\""));
  EXPECT_THAT(error("MASTER_PORT", "65536"), HasSubstr("from 1 to 65535"));
  EXPECT_THAT(error("MASTER_PORT", "99999999999999999999"),
              HasSubstr("MASTER_PORT is"));
}

TEST(ProcessGroup, MisuseIsNamed) {
  const auto error = [](Rendezvous rendezvous) {
    return text_of<UsageError>([&] { ProcessGroup::connect(rendezvous); });
  };
  EXPECT_THAT(error({.rank = 2, .world_size = 2}),
              HasSubstr("rank is 2; of 2 processes it must be 0 to 1"));
  EXPECT_THAT(error({.rank = 0, .world_size = 0}),
              HasSubstr("world_size is 0"));
  EXPECT_THAT(error({.master_address = ""}), HasSubstr("the master is \":"));
}

TEST(ProcessGroup, AMasterThatIsNotThereIsNamed) {
  const auto results = run_ranks(
      [](Rendezvous rendezvous) {
        rendezvous.rank = 1;
        rendezvous.world_size = 2;
        rendezvous.timeout = milliseconds(1500);
        const std::string text =
            text_of<Error>([&] { ProcessGroup::connect(rendezvous); });
        EXPECT_THAT(
            text,
            AllOf(HasSubstr("[process_group] rank 1 of 2 did not find the "
                            "others at 127.0.0.1:" +
                            std::to_string(rendezvous.master_port)),
                  HasSubstr("within 1.5 s; all ranks must be started")));
      },
      {.count = 1, .timeout = std::chrono::seconds(60)});
  EXPECT_TRUE(results[0].passed) << results[0].end << results[0].output;
}

TEST(ProcessGroup, AMissingRankIsNamed) {
  const auto results = run_ranks(
      [](Rendezvous rendezvous) {
        rendezvous.world_size = 2;
        rendezvous.timeout = milliseconds(1500);
        const std::string text =
            text_of<Error>([&] { ProcessGroup::connect(rendezvous); });
        EXPECT_THAT(text, HasSubstr("rank 0 of 2 did not find the others"));
      },
      {.count = 1, .timeout = std::chrono::seconds(60)});
  EXPECT_TRUE(results[0].passed) << results[0].end << results[0].output;
}

TEST(ProcessGroup, CollectiveOperations) {
  on_ranks(
      [](ProcessGroup& group) {
        EXPECT_EQ(group.size(), 3);
        const int rank = group.rank();
        const at::Tensor a = at::full({2, 3}, rank, at::kDouble);
        const at::Tensor b = at::full({}, 10 + rank, at::kLong);
        group.broadcast({a, b}, 2);
        EXPECT_TRUE(at::equal(a, at::full({2, 3}, 2, at::kDouble)));
        EXPECT_EQ(b.item<int64_t>(), 12);
        group.broadcast({});

        const at::Tensor sum = at::full({4}, rank + 1, at::kFloat);
        group.all_reduce_sum(sum);
        EXPECT_TRUE(at::equal(sum, at::full({4}, 6, at::kFloat)));

        const at::Tensor columns =
            at::arange(6, at::kLong).view({2, 3}).t() + rank;
        const auto all = group.all_gather(columns);
        ASSERT_EQ(all.size(), 3u);
        for (int other = 0; other < 3; ++other) {
          EXPECT_TRUE(at::equal(all[static_cast<size_t>(other)],
                                columns - rank + other));
        }
        EXPECT_THAT(text_of<UsageError>([&] { group.broadcast({a}, 3); }),
                    HasSubstr("broadcast: root is 3; it must be 0 to 2"));
      },
      {.count = 3});
}

// As under torchrun: the store is another's, and of an earlier attempt.
TEST(ProcessGroup, MeetsInAStoreThatIsThere) {
  const auto results = run_ranks([](Rendezvous rendezvous) {
    rendezvous.timeout = std::chrono::seconds(60);
    ProcessGroup first = ProcessGroup::connect(rendezvous);
    rendezvous.rank_0_hosts = false;
    rendezvous.attempt = 1;
    ProcessGroup second = ProcessGroup::connect(rendezvous);
    const at::Tensor ranks = at::full({1}, 1 + second.rank(), at::kLong);
    second.all_reduce_sum(ranks);
    EXPECT_EQ(ranks.item<int64_t>(), 3);
    first.barrier();
  });
  for (const RankResult& result : results) {
    EXPECT_TRUE(result.passed) << result.end << result.output;
  }
}

}  // namespace
}  // namespace remat::distributed
