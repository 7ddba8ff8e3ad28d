// SPDX-License-Identifier: Apache-2.0
//
// The example's programs as processes, on a softdc of their own.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/programs.h"
#include "tools/child_process.h"

namespace sluice::examples::own_loop {
namespace {

using tools::ChildProcess;

constexpr absl::Duration kLong = absl::Seconds(50);  // a hang; nothing waits for it otherwise

std::unique_ptr<ChildProcess> Start(std::vector<std::string> arguments) {
  arguments.push_back("--device=softdc0");
  return testing_support::StartProgram(std::move(arguments));
}

TEST(OwnLoopExampleTest, ARelayHandsCallsOnInOneThreadAndSleepsBetween) {
  auto server = Start({"examples/echo/echo_server", "--listen=127.0.0.1:0"});
  ASSERT_NE(server, nullptr);
  const auto upstream = tools::ListeningAddress(*server, kLong);
  ASSERT_TRUE(upstream.ok()) << upstream.status();
  auto relay =
      Start({"examples/own_loop/relay", "--listen=127.0.0.1:0", "--upstream=" + *upstream});
  ASSERT_NE(relay, nullptr);
  const auto front = tools::ListeningAddress(*relay, kLong);
  ASSERT_TRUE(front.ok()) << front.status();
  for (int i = 1; i <= 2; ++i) {
    auto client = Start({"examples/echo/echo_client", "--server=" + *front,
                         "--text=hello " + std::to_string(i), "--timeout=50s"});
    ASSERT_NE(client, nullptr);
    EXPECT_EQ(client->ReadAll(kLong).value_or(""), "hello " + std::to_string(i) + "\n");
    EXPECT_EQ(client->Wait(kLong).value_or(-1), 0);
    // Its clock, a descriptor beside Sluice's.
    EXPECT_EQ(relay->ReadLine(kLong).value_or(""), std::to_string(i) + " calls handed on");
  }
  relay->Signal(SIGTERM);
  EXPECT_EQ(relay->Wait(kLong).value_or(-1), 0);
}

}  // namespace
}  // namespace sluice::examples::own_loop
