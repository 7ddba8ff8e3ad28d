// SPDX-License-Identifier: Apache-2.0
//
// EchoTest: the example's own server as a process, and channels to it from this one, on a softdc of
// their own.
#ifndef SLUICE_TESTS_EXAMPLES_ECHO_ECHO_FIXTURE_H_
#define SLUICE_TESTS_EXAMPLES_ECHO_ECHO_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "examples/echo/echo.sluice.h"
#include "middleware/api/channel.h"
#include "tools/child_process.h"

namespace sluice::examples::echo {

// Before anything of softdc runs in this process; children inherit it.
inline const bool kIsolated = [] {
  return setenv("SOFTDC_DOMAIN", absl::StrCat("test-", getpid()).c_str(), 1) == 0;
}();

inline constexpr char kServerPath[] = "examples/echo/echo_server";
inline constexpr absl::Duration kLong =
    absl::Seconds(30);  // a hang; nothing waits for it otherwise

class EchoTest : public ::testing::Test {
 protected:
  EchoTest() { EXPECT_TRUE(kIsolated); }

  void StartServer(const std::string& listen = "127.0.0.1:0") {
    auto server =
        tools::ChildProcess::Start({kServerPath, "--listen=" + listen, "--device=softdc0"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto address = tools::ListeningAddress(*server_, kLong);
    ASSERT_TRUE(address.ok()) << address.status();
    address_ = *address;
  }

  static ChannelOptions Options() {
    ChannelOptions options;
    options.device = "softdc0";
    return options;
  }

  std::shared_ptr<Channel> MustConnect(const ChannelOptions& options = Options()) {
    auto channel = Channel::Connect(address_, options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return channel.ok() ? *channel : nullptr;
  }

  static absl::Status Say(const std::shared_ptr<Channel>& channel, const std::string& text,
                          absl::Duration timeout = kLong, bool wait_for_ready = false) {
    CallContext context(timeout);
    context.set_wait_for_ready(wait_for_ready);
    SayRequest request;
    request.set_payload(text);
    auto reply = EchoClient(channel).Say(context, request);
    if (reply.ok()) {
      EXPECT_EQ(reply->payload(), text);
    }
    return reply.status();
  }

  std::unique_ptr<tools::ChildProcess> server_;
  std::string address_;
};

}  // namespace sluice::examples::echo

#endif  // SLUICE_TESTS_EXAMPLES_ECHO_ECHO_FIXTURE_H_
