// SPDX-License-Identifier: Apache-2.0
//
// A channel's own sink and level.
#include "middleware/api/log.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "examples/echo/echo.sluice.h"
#include "middleware/api/in_process.h"
#include "middleware/api/level_log.h"
#include "tests/support/kept_log.h"

namespace sluice {
namespace log_test {

using testing_support::KeptLog;

TEST(LevelLogTest, WritesWhatIsAtItsLevelOrAbove) {
  const struct {
    LogLevel level;
    size_t written;
  } kCases[] = {
      {LogLevel::kOff, 0}, {LogLevel::kError, 1}, {LogLevel::kWarning, 2}, {LogLevel::kInfo, 3}};
  for (const auto& [level, written] : kCases) {
    const auto kept = std::make_shared<KeptLog>();
    KeptLog other;
    LevelLog log(kept, &other, level);
    for (const auto severity : {LogSeverity::kInfo, LogSeverity::kWarning, LogSeverity::kError}) {
      log.Write({severity, "call", "event", "", "text"});
    }
    EXPECT_EQ(kept->size(), written);
    EXPECT_EQ(other.size(), 0u) << "the options' sink comes first";
    LevelLog otherwise(nullptr, &other, level);
    otherwise.Write({LogSeverity::kError, "call", "event", "", "text"});
    EXPECT_EQ(other.size(), level == LogLevel::kOff ? 0u : 1u);
  }
  LevelLog nowhere(nullptr, nullptr, LogLevel::kInfo);
  nowhere.Write({LogSeverity::kError, "call", "event", "", "text"});
}

class Echo final : public examples::echo::EchoServiceBase {
  absl::Status Say(ServerContext&, const examples::echo::SayRequest&,
                   examples::echo::SayReply*) override {
    return absl::OkStatus();
  }
};

TEST(LogTest, ChannelTellsItsSinkOfALostServer) {
  Echo echo;
  auto world = InProcess::Start({&echo});
  ASSERT_TRUE(world.ok()) << world.status();
  const auto kept = std::make_shared<KeptLog>();
  ChannelOptions options;
  options.log = kept;
  auto channel = (*world)->NewChannel(options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  (*world)->KillServer();
  EXPECT_TRUE((*channel)->Drive([&] { return kept->Has("connection lost"); }, absl::Seconds(60)));
}

}  // namespace log_test
}  // namespace sluice
