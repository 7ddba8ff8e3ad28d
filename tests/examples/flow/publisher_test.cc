// SPDX-License-Identifier: Apache-2.0
//
// The example's programs as processes, on a softdc of their own.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>

#include "tests/support/programs.h"
#include "tools/child_process.h"

namespace sluice::examples::flow {
namespace {

using tools::ChildProcess;

constexpr char kPublisher[] = "examples/flow/publisher";
constexpr char kSubscriber[] = "examples/flow/subscriber";
constexpr absl::Duration kLong = absl::Seconds(50);  // a hang; nothing waits for it otherwise

std::unique_ptr<ChildProcess> Start(std::vector<std::string> arguments) {
  arguments.push_back("--device=softdc0");
  return testing_support::StartProgram(std::move(arguments));
}

TEST(PublisherTest, EverySubscriberGetsEveryTickInOrder) {
  auto publisher = Start({kPublisher, "--listen=127.0.0.1:0", "--ticks=5000", "--subscribers=3"});
  ASSERT_NE(publisher, nullptr);
  const auto address = tools::ListeningAddress(*publisher, kLong);
  ASSERT_TRUE(address.ok()) << address.status();
  std::unique_ptr<ChildProcess> subscribers[3];
  for (auto& subscriber : subscribers) {
    subscriber = Start({kSubscriber, "--publisher=" + *address});
    ASSERT_NE(subscriber, nullptr);
  }
  for (auto& subscriber : subscribers) {
    const auto said = subscriber->ReadAll(kLong);
    ASSERT_TRUE(said.ok()) << said.status();
    EXPECT_EQ(said->rfind("5000 ticks, all in order", 0), 0u) << *said;
    EXPECT_EQ(subscriber->Wait(kLong).value_or(-1), 0);
  }
  EXPECT_EQ(publisher->Wait(kLong).value_or(-1), 0);
}

TEST(PublisherTest, PublisherThatDiesIsHeardOf) {
  auto publisher = Start({kPublisher, "--listen=127.0.0.1:0", "--ticks=1000000000000"});
  ASSERT_NE(publisher, nullptr);
  const auto address = tools::ListeningAddress(*publisher, kLong);
  ASSERT_TRUE(address.ok()) << address.status();
  auto subscriber = Start({kSubscriber, "--publisher=" + *address});
  ASSERT_NE(subscriber, nullptr);
  const auto line = publisher->ReadLine(kLong);
  ASSERT_TRUE(line.ok()) << line.status();
  publisher->Signal(SIGKILL);
  EXPECT_EQ(subscriber->Wait(kLong).value_or(-1), 1);
}

// Flows that are left when a program ends are told of to handlers that are still there.
TEST(PublisherTest, EndsWithFlowsThatAreLeft) {
  auto publisher =
      Start({kPublisher, "--listen=127.0.0.1:0", "--ticks=1000000000000", "--subscribers=1"});
  ASSERT_NE(publisher, nullptr);
  const auto address = tools::ListeningAddress(*publisher, kLong);
  ASSERT_TRUE(address.ok()) << address.status();
  auto stays = Start({kSubscriber, "--publisher=" + *address});
  ASSERT_NE(stays, nullptr);
  ASSERT_TRUE(publisher->ReadLine(kLong).ok());  // it subscribes
  auto leaves = Start({kSubscriber, "--publisher=" + *address, "--timeout=300ms"});
  ASSERT_NE(leaves, nullptr);
  EXPECT_EQ(leaves->Wait(kLong).value_or(-1), 1);
  EXPECT_EQ(publisher->Wait(kLong).value_or(-1), 0);
  EXPECT_EQ(stays->Wait(kLong).value_or(-1), 1);
}

}  // namespace
}  // namespace sluice::examples::flow
