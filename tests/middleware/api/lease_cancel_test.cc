// SPDX-License-Identifier: Apache-2.0
//
// Calls that are cancelled, or cannot be started, in the list of calls that were handed over.
#include <gtest/gtest.h>

#include <optional>
#include <stop_token>
#include <thread>

#include "examples/echo/echo.sluice.h"
#include "middleware/api/channel_keep.h"
#include "middleware/api/client_call.h"
#include "middleware/api/status_detail.h"
#include "tests/middleware/api/handover.h"
#include "tests/middleware/api/noticing.h"

namespace sluice {
namespace lease_cancel_test {

using examples::echo::EchoClient;
using examples::echo::SayReply;
using examples::echo::SayRequest;
using testing_support::Controlled;
using testing_support::Noticing;

class LeaseCancelTest : public testing_support::HandOverTest {
 protected:
  const SayRequest request_;
};

// A thread that gives up while the list is being started must not take the mark away: a call that could not be started would be forgotten.
TEST_F(LeaseCancelTest, CallThatCouldNotBeStartedIsKnownWhenAnotherThreadHasGivenUp) {
  auto channel = Connect();
  const Noticing gives_up([&] {
    std::thread([&] {
      CallContext soon(absl::Nanoseconds(1));
      EXPECT_FALSE(EchoClient(channel).Say(soon, request_).ok());
    }).join();
  });
  Controlled first, late(absl::Nanoseconds(1));
  WhileAnotherDrives(channel.get(), [&] {
    EXPECT_TRUE(first.Start(channel.get(), gives_up).ok());
    EXPECT_TRUE(late.Start(channel.get(), request_).ok());
  });
  EXPECT_TRUE(channel->Drive([&] { return late.ended == 1; }, absl::Seconds(20)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.end)) << late.end;
  channel.reset();
  EXPECT_EQ(first.ended, 1);
}

TEST_F(LeaseCancelTest, CallThatIsStoppedInTheListIsNotSent) {
  auto channel = Connect();
  bool sent = false;
  const Noticing request([&sent] { sent = true; });
  std::stop_source stop;
  CallContext stoppable(absl::Nanoseconds(1));  // the deadline has passed as well
  stoppable.set_stop_token(stop.get_token());
  SayReply reply;
  std::optional<absl::Status> end;
  WhileAnotherDrives(channel.get(), [&] {
    EXPECT_TRUE(StartCall(channel.get(), EchoClient::SayMethod(), stoppable, request, &reply,
                          [&](const absl::Status& status) { end = status; })
                    .ok());
    stop.request_stop();
  });
  EXPECT_TRUE(channel->Drive([&] { return end.has_value(); }, absl::Seconds(20)));
  EXPECT_TRUE(absl::IsCancelled(*end)) << *end;
  EXPECT_TRUE(IsRetrySafe(*end)) << *end;
  EXPECT_FALSE(sent);
}

// The thread that waits has not got the lease: it marks the call before the thread that drives looks at the list.
TEST_F(LeaseCancelTest, CallThatIsCancelledInTheListIsNotSent) {
  auto channel = Connect();
  bool sent = false;
  const Noticing request([&sent] { sent = true; });
  Controlled call;
  std::thread cancels;
  WhileAnotherDrives(channel.get(), [&] {
    EXPECT_TRUE(call.Start(channel.get(), request).ok());
    cancels =
        std::thread([&] { internal::ChannelKeep(channel.get())->CancelAndWait(&call.control); });
    while (!call.control.cancelled) std::this_thread::yield();
  });
  cancels.join();
  EXPECT_EQ(call.ended, 1);
  EXPECT_TRUE(absl::IsCancelled(call.end)) << call.end;
  EXPECT_FALSE(sent);
}

}  // namespace lease_cancel_test
}  // namespace sluice
