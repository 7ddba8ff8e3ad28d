// SPDX-License-Identifier: Apache-2.0
//
// The example's programs as processes, on a softdc of their own.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/support/programs.h"
#include "tools/child_process.h"

namespace sluice::examples::fan_out {
namespace {

using tools::ChildProcess;

constexpr absl::Duration kLong = absl::Seconds(50);  // a hang; nothing waits for it otherwise

class FanOutTest : public ::testing::Test {
 protected:
  // Starts a server; its address.
  std::string StartServer(std::vector<std::string> arguments) {
    testing_support::ServerProgram server(std::move(arguments));
    servers_.push_back(std::move(server.process));
    return server.address;
  }
  std::string Search() {
    return testing_support::OutputOf(
        testing_support::StartProgram({"examples/fan_out/search", "--server=" + front_,
                                       "--device=softdc0", "--prefix=ap", "--timeout=50s"})
            .get());
  }
  // A shard may be too late for one search on a busy machine, and then is not for the next. `missing`: a shard that
  // does not answer, for whatever reason it then is given.
  void ExpectSoon(const std::string& words, const std::string& missing = "") {
    const absl::Time end = absl::Now() + kLong;
    const std::string expected = missing.empty() ? words : words + "missing " + missing + " ";
    std::string said;
    do {
      said = Search();
      if (said == expected) return;
      const bool one_more_line = said.find('\n', expected.size()) == said.size() - 1;
      if (!missing.empty() && said.rfind(expected, 0) == 0 && one_more_line) return;
    } while (absl::Now() < end);
    ADD_FAILURE() << said << "instead of " << expected;
  }

  std::vector<std::unique_ptr<ChildProcess>> servers_;
  std::string front_;
};

TEST_F(FanOutTest, ShardsThatDoNotAnswerAreMissedAndTheOthersCount) {
  const std::string first = StartServer({"examples/fan_out/shard_server", "--words=apple,pear"});
  const std::string second = StartServer({"examples/fan_out/shard_server", "--words=apricot"});
  const std::string third = StartServer({"examples/fan_out/shard_server", "--words=april,plum"});
  front_ = StartServer({"examples/fan_out/search_server",
                        "--shards=" + first + "," + second + "," + third, "--patience=300ms"});
  ExpectSoon("apple\napricot\napril\n");
  servers_[1]->Signal(SIGSTOP);
  ExpectSoon("apple\napril\n", second);
  servers_[1]->Signal(SIGCONT);
  ExpectSoon("apple\napricot\napril\n");
  // One that drains is told of at once.
  servers_[2]->Signal(SIGTERM);
  EXPECT_EQ(servers_[2]->Wait(kLong).value_or(-1), 0);
  ExpectSoon("apple\napricot\n", third);
  servers_[3]->Signal(SIGTERM);
  EXPECT_EQ(servers_[3]->Wait(kLong).value_or(-1), 0);
}

TEST_F(FanOutTest, FrontWithoutShardsIsRefused) {
  auto front = ChildProcess::Start(
      {"examples/fan_out/search_server", "--listen=127.0.0.1:0", "--device=softdc0"});
  ASSERT_TRUE(front.ok()) << front.status();
  EXPECT_EQ((*front)->Wait(kLong).value_or(-1), 1);
}

}  // namespace
}  // namespace sluice::examples::fan_out
