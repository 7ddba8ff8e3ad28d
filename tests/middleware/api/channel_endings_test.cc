// SPDX-License-Identifier: Apache-2.0
//
// Channels whose last reference goes while streams, coroutines and stops on other threads still refer to them.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "tests/middleware/api/chat_service.h"
#include "tests/middleware/api/endings.h"

namespace sluice {
namespace channel_endings_test {

using testing_support::Begin;
using testing_support::ChatClient;
using testing_support::Gate;
using testing_support::HomeOfTheTest;
using testing_support::Line;
using testing_support::Owned;

using ChannelEndingsTest = testing_support::EndingsWorld;

// ---- Stops

// The first callback that the end of the channel runs has another thread request a stop of the other call.
TEST_F(ChannelEndingsTest, StopOnAnotherThreadRunsNoCallbackBesideThoseOfTheEnd) {
  auto channel = ConnectLoop();
  std::stop_source stop;
  CallContext stoppable = CallContext::NoDeadline();
  stoppable.set_stop_token(stop.get_token());
  std::atomic<bool> inside{false};
  std::atomic<int> ended{0};
  Line replies[2];
  for (Line& reply : replies) {
    ASSERT_TRUE(ChatClient(channel)
                    .StartSay(stoppable, wait_, &reply,
                              [&](const absl::Status& status) {
                                EXPECT_TRUE(absl::IsCancelled(status)) << status;
                                EXPECT_FALSE(inside.exchange(true)) << "two callbacks at once";
                                if (++ended == 1) std::thread([&] { stop.request_stop(); }).join();
                                inside = false;
                              })
                    .ok());
  }
  channel.reset();
  EXPECT_EQ(ended, 2);
  EXPECT_TRUE(gone_->open());
}

// A race on purpose.
TEST_F(ChannelEndingsTest, ChannelsEndWhileAnotherThreadRequestsAStop) {
  for (int round = 0; round < 50; ++round) {
    auto channel = ConnectWith({});
    std::stop_source stop;
    CallContext stoppable = CallContext::NoDeadline();
    stoppable.set_stop_token(stop.get_token());
    std::atomic<int> ended{0};
    Line replies[2];
    for (Line& reply : replies) {
      ASSERT_TRUE(ChatClient(channel)
                      .StartSay(stoppable, wait_, &reply, [&](const absl::Status&) { ++ended; })
                      .ok());
    }
    std::thread stopper([&] {
      for (int yields = round % 10; yields > 0; --yields) std::this_thread::yield();
      stop.request_stop();
    });
    channel.reset();
    EXPECT_EQ(ended, 2) << "they end with the channel at the latest";
    stopper.join();
  }
}

TEST_F(ChannelEndingsTest, CallbackOfTheEndIsACallbackLikeAnyOther) {
  auto channel = ConnectLoop();
  Channel* const ending = channel.get();
  bool ended = false;
  ASSERT_TRUE(ChatClient(channel)
                  .StartSay(forever_, wait_, &answer_,
                            [&](const absl::Status&) {
                              CallContext context(absl::Seconds(60));
                              Line reply;
                              const absl::Status status =
                                  ending->Call(ChatClient::SayMethod(), context, hello_, &reply);
                              EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
                              EXPECT_FALSE(
                                  ending->Drive([] { return false; }, absl::InfiniteDuration()));
                              ended = true;
                            })
                  .ok());
  channel.reset();
  EXPECT_TRUE(ended);
}

// ---- Streams

TEST_F(ChannelEndingsTest, StreamThatOutlivesItsChannelSaysThatItsCallIsCancelled) {
  auto channel = ConnectLoop();
  auto talk = std::make_optional(ChatClient(channel).Talk(forever_));
  std::optional<bool> read, written;
  Line into;
  talk->StartRead(&into, [&](bool ok) { read = ok; });
  channel.reset();
  EXPECT_EQ(read, false);
  EXPECT_FALSE(gone_->open()) << "the stream keeps what it refers to";
  EXPECT_FALSE(talk->Read(&into));
  EXPECT_FALSE(talk->Write(hello_));
  talk->StartWrite(hello_, [&](bool ok) { written = ok; });
  EXPECT_EQ(written, false);
  talk->WritesDone();
  talk->Cancel();
  const absl::Status status = talk->Finish();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  talk.reset();
  EXPECT_TRUE(gone_->open());
}

TEST_F(ChannelEndingsTest, StreamThatIsDestroyedAtTheEndOfItsChannelIsForgotten) {
  auto channel = ConnectLoop();
  auto talk = std::make_optional(ChatClient(channel).Talk(forever_));
  std::optional<bool> read;
  Line into;
  talk->StartRead(&into, [&](bool ok) {
    read = ok;
    talk.reset();
  });
  channel.reset();
  EXPECT_EQ(read, false);
  EXPECT_TRUE(gone_->open());
}

// ---- Coroutines

// Their frames hold no client, which would be a reference.
TEST_F(ChannelEndingsTest, CoroutineAtHomeGoesOnWhenItsChannelHasEnded) {
  auto channel = ConnectLoop();
  HomeOfTheTest home;
  std::optional<absl::Status> status;
  const auto say = [&]() -> Task<void> {
    auto waiting = ChatClient(channel).CoSay(forever_, wait_);
    status = (co_await waiting).status();
  };
  const Owned caller = Begin(&home, say());
  channel.reset();
  EXPECT_FALSE(status.has_value());
  EXPECT_EQ(home.Run(), 1);
  ASSERT_TRUE(status.has_value());
  EXPECT_TRUE(absl::IsCancelled(*status)) << *status;
}

TEST_F(ChannelEndingsTest, CoroutineThatIsDestroyedWhenItsChannelHasEndedIsForgotten) {
  auto channel = ConnectLoop();
  HomeOfTheTest home;
  {
    const Owned caller = Begin(&home, SayInVain(channel));
    const Owned reader = Begin(&home, ReadInVain(channel));
    channel.reset();
    EXPECT_FALSE(gone_->open());
  }
  EXPECT_EQ(home.Run(), 0);
  EXPECT_TRUE(gone_->open());
}

// A race on purpose: the channel ends on a thread of its own while the coroutines are destroyed at home.
TEST_F(ChannelEndingsTest, CoroutinesAreDestroyedWhileTheirChannelEnds) {
  for (int round = 0; round < 50; ++round) {
    auto channel = ConnectWith({});
    HomeOfTheTest home;
    std::thread ender;
    {
      const Owned caller = Begin(&home, SayInVain(channel));
      const Owned reader = Begin(&home, ReadInVain(channel));
      ender = std::thread([held = std::move(channel)]() mutable { held.reset(); });
      for (int yields = round % 20; yields > 0; --yields) std::this_thread::yield();
    }
    ASSERT_EQ(home.Run(), 0);
    ender.join();
  }
}

}  // namespace channel_endings_test
}  // namespace sluice
