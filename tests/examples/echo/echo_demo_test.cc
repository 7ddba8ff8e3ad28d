// SPDX-License-Identifier: Apache-2.0
//
// The programs of examples/echo as a newcomer runs them.
#include <gmock/gmock.h>
#include <signal.h>

#include <string>
#include <vector>

#include "tests/examples/echo/echo_fixture.h"

namespace sluice::examples::echo {
namespace echo_demo_test {

using ::testing::HasSubstr;
using ::testing::Not;

struct Ended {
  std::string output;
  int exit_code = -1;
};

Ended RunProgram(const std::vector<std::string>& arguments) {
  auto process = tools::ChildProcess::Start(arguments);
  EXPECT_TRUE(process.ok()) << process.status();
  if (!process.ok()) return {};
  auto output = (*process)->ReadAll(kLong);
  EXPECT_TRUE(output.ok()) << output.status();
  auto exit_code = (*process)->Wait(kLong);
  EXPECT_TRUE(exit_code.ok()) << exit_code.status();
  return {output.value_or(""), exit_code.value_or(-1)};
}

TEST_F(EchoTest, DemoCallsAnotherProcessAndReports) {
  const Ended demo =
      RunProgram({"examples/echo/echo_demo", "--duration=300ms", "--device=softdc0"});
  EXPECT_EQ(demo.exit_code, 0);
  EXPECT_THAT(demo.output, HasSubstr("calls made: "));
  EXPECT_THAT(demo.output, Not(HasSubstr("calls made:   0\n")));
  EXPECT_THAT(demo.output, HasSubstr("failed calls: 0\n"));
  EXPECT_THAT(demo.output, HasSubstr("p99.9"));
  EXPECT_THAT(demo.output, HasSubstr("device: softdc0"));
  for (const char* capability : {"stream isolation", "CM-safe numbers", "per-destination CC",
                                 "payload polling", "signed transfers"}) {
    EXPECT_THAT(demo.output, HasSubstr(capability));
  }
}

TEST_F(EchoTest, ClientPrintsTheAnswer) {
  StartServer();
  const Ended client = RunProgram(
      {"examples/echo/echo_client", "--server=" + address_, "--text=good day", "--device=softdc0"});
  EXPECT_EQ(client.output, "good day\n");
  EXPECT_EQ(client.exit_code, 0);
}

TEST_F(EchoTest, ClientWithoutServerFailsAndSaysNothingElse) {
  StartServer();
  server_.reset();  // now nobody listens there
  const Ended client =
      RunProgram({"examples/echo/echo_client", "--server=" + address_, "--device=softdc0"});
  EXPECT_EQ(client.output, "");
  EXPECT_EQ(client.exit_code, 1);
}

class EndSignal : public EchoTest, public ::testing::WithParamInterface<int> {};

TEST_P(EndSignal, ServerShutsDown) {
  StartServer();
  auto channel = MustConnect();
  ASSERT_TRUE(Say(channel, "hello").ok());
  server_->Signal(GetParam());
  auto exit_code = server_->Wait(kLong);
  ASSERT_TRUE(exit_code.ok()) << exit_code.status();
  EXPECT_EQ(*exit_code, 0);
}

INSTANTIATE_TEST_SUITE_P(Signals, EndSignal, ::testing::Values(SIGINT, SIGTERM),
                         [](const auto& info) {
                           return info.param == SIGINT ? "SIGINT" : "SIGTERM";
                         });

}  // namespace echo_demo_test
}  // namespace sluice::examples::echo
