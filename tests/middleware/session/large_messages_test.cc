// SPDX-License-Identifier: Apache-2.0
//
// Large messages between two Sessions over the fake network: in their place, once, and everything that was lent comes back.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/middleware/session/large_pair.h"
#include "transport/base/error.h"

namespace sluice::session {
namespace large_messages_test {

TEST_F(LargeMessagesTest, ComeAsTheyWereWritten) {
  Start();
  EXPECT_EQ(a_.largest, 1u << 20);
  ASSERT_TRUE(a_.Send(1, 'a', kEagerBytes));
  ASSERT_TRUE(a_.Send(2, 'b', kEagerBytes + 1));
  ASSERT_TRUE(a_.Send(3, 'c', 1 << 20));
  EXPECT_FALSE(a_.Send(4, 'd', (1 << 20) + 1));
  Settle();
  EXPECT_EQ(b_.received, "1a 2bL 3cL ");
  EXPECT_EQ(a_.sessions.counters().large_sent, 2u);
  EXPECT_EQ(b_.sessions.counters().large_received, 2u);
  ExpectNothingOut();
}

TEST_F(LargeMessagesTest, ThereAreNoneWhereOneSideTakesNone) {
  Start({.max_large_bytes = 0});
  EXPECT_EQ(a_.largest, kEagerBytes);
  EXPECT_EQ(a_.sessions.Reserve(a_.peer, kEagerBytes + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(LargeMessagesTest, OtherCallsPassTheSameCallWaits) {
  Start();
  b_.endpoint->set_hold_fetches(true);
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  ASSERT_TRUE(a_.Send(1, 'b', 10, frame::Kind::kStreamData));
  ASSERT_TRUE(a_.Send(2, 'c', 10));
  ASSERT_TRUE(a_.Send(1, 'd', 20000, frame::Kind::kStreamData));
  ASSERT_TRUE(a_.Send(1, 'e', 10, frame::Kind::kStreamData));
  ASSERT_TRUE(a_.Send(1, 'f', 10, frame::Kind::kFlowData));  // flow 1, not call 1
  Settle();
  EXPECT_EQ(b_.received, "2c 1f ");
  b_.endpoint->set_hold_fetches(false);
  Settle();
  EXPECT_EQ(b_.received, "2c 1f 1aL 1b 1dL 1e ");
  ExpectNothingOut();
}

TEST_F(LargeMessagesTest, ACancelTakesARequestAwayThatNobodyHasSeen) {
  Start();
  b_.endpoint->set_hold_fetches(true);
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  ASSERT_TRUE(a_.Send(1, 'b', 10, frame::Kind::kStreamData));
  ASSERT_TRUE(a_.Send(1, 'x', 0, frame::Kind::kCancel));
  ASSERT_TRUE(a_.Send(2, 'c', 10000));
  b_.endpoint->set_hold_fetches(false);
  Settle();
  EXPECT_EQ(b_.received, "2cL ");
  ExpectNothingOut();
}

// What is committed behind it waits, whoever's it is: one order for all.
TEST_F(LargeMessagesTest, WaitForTheDeviceToKnowTheirMemory) {
  Start();
  a_.endpoint->set_slow_lending(true);
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  ASSERT_TRUE(a_.Send(2, 'b', 10));
  Settle();
  EXPECT_EQ(b_.received, "");
  a_.endpoint->FailRequests(a_.peer);  // nothing of it was sent, nothing is sent again
  Settle();
  a_.endpoint->FinishLending(absl::OkStatus());
  Settle();
  EXPECT_EQ(b_.received, "2b 1aL ");
  EXPECT_EQ(b_.sessions.counters().duplicates, 0u);
  ExpectNothingOut();
}

TEST_F(LargeMessagesTest, MemoryThatTheDeviceRefusesIsToldToTheSender) {
  Start();
  a_.endpoint->set_slow_lending(true);
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  ASSERT_TRUE(a_.Send(2, 'b', 10));
  a_.endpoint->FinishLending(absl::ResourceExhaustedError("memlock"));
  Settle();
  EXPECT_EQ(a_.lost, "1memlock ");
  EXPECT_EQ(b_.received, "2b ") << "what is behind it goes on";
  ASSERT_TRUE(b_.Send(9, 'z', 1));
  Settle();
  EXPECT_EQ(a_.delivered, 2u) << "its place in the sequence was taken";
  ExpectNothingOut();
}

TEST_F(LargeMessagesTest, AFetchThatFailsIsToldToTheReceiver) {
  Start();
  b_.endpoint->set_fail_fetches(absl::ResourceExhaustedError("memlock"));
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  ASSERT_TRUE(a_.Send(1, 'b', 10, frame::Kind::kStreamData));
  Settle();
  EXPECT_EQ(b_.lost, "1memlock ");
  EXPECT_EQ(b_.received, "1b ");
  EXPECT_EQ(b_.error, "");
  ExpectNothingOut();
}

// The peer's device says the same of memory that was revoked and of memory that was never lent.
TEST_F(LargeMessagesTest, AFetchThatIsRefusedIsToldAsUnavailable) {
  Start();
  b_.endpoint->set_fail_fetches(base::Error(absl::StatusCode::kPermissionDenied, "refused",
                                            {.layer = "endpoint", .peer = "host:7"}));
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  Settle();
  EXPECT_EQ(b_.why_lost.code(), absl::StatusCode::kUnavailable) << b_.why_lost;
  const auto detail = base::DetailOf(b_.why_lost);
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->peer(), "host:7");
  EXPECT_EQ(detail->cause(),
            "the peer withdrew the message, or disconnected while this side read it");
  EXPECT_FALSE(detail->retry_safe());
  EXPECT_EQ(b_.error, "");
  ExpectNothingOut();
}

TEST_F(LargeMessagesTest, DeliveredCountsTheUsersMessagesOnceTheyWereRead) {
  Start();
  b_.endpoint->set_hold_fetches(true);
  ASSERT_TRUE(a_.Send(1, 'a', 10));
  ASSERT_TRUE(a_.Send(2, 'b', 10000));
  ASSERT_TRUE(a_.Send(3, 'c', 10));
  Settle();
  ASSERT_TRUE(b_.Send(7, 'y', 10));  // says how far it is
  Settle();
  EXPECT_EQ(a_.delivered, 1u) << "the second was not read yet";
  b_.endpoint->set_hold_fetches(false);
  Settle();
  EXPECT_EQ(a_.delivered, 3u);
  // Its kTaken was none of b's user's messages.
  ASSERT_TRUE(a_.Send(4, 'd', 10));
  Settle();
  EXPECT_EQ(b_.delivered, 1u);
  ExpectNothingOut();
}

TEST_F(LargeMessagesTest, WithoutCreditTakenIsSaidLater) {
  Start({.credits = 2, .max_large_bytes = 1 << 20, .large_memory_bytes = 2 << 20});
  a_.endpoint->set_withhold_credits(true);
  ASSERT_TRUE(b_.Send(8, 'x', 1));
  ASSERT_TRUE(b_.Send(8, 'x', 1));
  Settle();
  EXPECT_FALSE(b_.Send(8, 'x', 1));
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  Settle();
  EXPECT_EQ(b_.received, "1aL ");
  EXPECT_EQ(a_.endpoint->large_out(), 1u);
  a_.endpoint->set_withhold_credits(false);
  Settle();
  ExpectNothingOut();
}

TEST_F(LargeMessagesTest, WhoFindsNoMemoryIsToldWhenSomeIsBack) {
  Start();
  b_.endpoint->set_hold_fetches(true);
  ASSERT_TRUE(a_.Send(1, 'a', 1 << 20));
  ASSERT_TRUE(a_.Send(2, 'b', 1 << 20));
  a_.writable = 0;
  EXPECT_FALSE(a_.Send(3, 'c', 10000));
  EXPECT_EQ(a_.endpoint->credits_out(), 2) << "it keeps no credit either";
  b_.endpoint->set_hold_fetches(false);
  Settle();
  EXPECT_GT(a_.writable, 0);
  ASSERT_TRUE(a_.Send(3, 'c', 10000));
  Settle();
  EXPECT_EQ(b_.received, "1aL 2bL 3cL ");
  ExpectNothingOut();
}

TEST_F(LargeMessagesTest, MoreThanMayBeUnderWayWait) {
  Start({.credits = 200, .max_large_bytes = 1 << 20, .large_memory_bytes = 8 << 20});
  b_.endpoint->set_hold_fetches(true);
  for (uint32_t i = 0; i < kMaxLent; ++i) ASSERT_TRUE(a_.Send(i, 'a', 5000));
  EXPECT_FALSE(a_.Send(99, 'a', 5000));
  a_.writable = 0;
  b_.endpoint->set_hold_fetches(false);
  Settle();
  EXPECT_GT(a_.writable, 0);
  ASSERT_TRUE(a_.Send(99, 'a', 5000));
  Settle();
  ExpectNothingOut();
}

TEST_F(LargeMessagesTest, CancelledBuffersGoBack) {
  Start();
  const auto buffer = a_.sessions.Reserve(a_.peer, 10000);
  ASSERT_TRUE(buffer.ok());
  a_.sessions.Cancel(a_.peer, *buffer);
  EXPECT_EQ(a_.endpoint->credits_out(), 0);
  EXPECT_EQ(a_.endpoint->slots_out(), 0u);
  ExpectNothingOut();
}

TEST_F(LargeMessagesTest, NothingLeftOfALargeOneIsAMessageAllTheSame) {
  Start();
  for (const bool slow : {false, true}) {
    a_.endpoint->set_slow_lending(slow);
    const auto buffer = a_.sessions.Reserve(a_.peer, 10000);
    ASSERT_TRUE(buffer.ok());
    frame::Header header;
    header.kind = frame::Kind::kFlowData;
    header.flow_id = 1;
    a_.sessions.Commit(a_.peer, *buffer, header);
    Settle();
    EXPECT_EQ(b_.received, slow ? "1- 1- " : "1- ");
    EXPECT_EQ(b_.error, "");
    ExpectNothingOut();
  }
}

TEST_F(LargeMessagesTest, NoMemoryOfTheSystemIsAnErrorThatStays) {
  Start();
  a_.endpoint->set_fail_lending(true);
  EXPECT_EQ(a_.sessions.Reserve(a_.peer, 10000).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(a_.endpoint->credits_out(), 0);
  ExpectNothingOut();
}

TEST_F(LargeMessagesTest, DeathGivesEverythingBackOnce) {
  Start();
  b_.endpoint->set_hold_fetches(true);
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  ASSERT_TRUE(a_.Send(1, 'b', 10, frame::Kind::kStreamData));
  Settle();
  a_.endpoint->set_slow_lending(true);
  ASSERT_TRUE(a_.Send(2, 'c', 10000));
  ASSERT_TRUE(a_.Send(3, 'd', 10));
  b_.endpoint->Kill();
  Settle();
  EXPECT_FALSE(a_.down.ok());
  EXPECT_EQ(a_.endpoint->large_out(), 0u);
  EXPECT_EQ(a_.endpoint->slots_out(), 0u);
  EXPECT_EQ(a_.sessions.counters().lent, 0u);
}

TEST_F(LargeMessagesTest, ResentDescriptorsAreNotFetchedTwice) {
  Start();
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  Settle();
  a_.endpoint->FailRequests(a_.peer);
  Settle();
  EXPECT_EQ(b_.received, "1aL ");
  EXPECT_EQ(a_.error + b_.error, "");
  ExpectNothingOut();
}

// Its memory is the sender's again, though another fetch goes on.
TEST_F(LargeMessagesTest, ACancelledFetchEndsAtOnce) {
  Start();
  b_.endpoint->set_hold_fetches(true);
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  ASSERT_TRUE(a_.Send(2, 'b', 10000));
  ASSERT_TRUE(a_.Send(2, 'x', 0, frame::Kind::kCancel));
  Settle();
  EXPECT_EQ(a_.sessions.counters().lent, 1u);
  EXPECT_EQ(b_.sessions.counters().large_lost, 0u) << "nobody wanted it";
}

TEST_F(LargeMessagesTest, WhatIsReadOutOfTurnIsDeliveredInTurn) {
  Start();
  b_.endpoint->set_hold_fetches(true);
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  ASSERT_TRUE(a_.Send(1, 'b', 10000, frame::Kind::kStreamData));
  ASSERT_TRUE(a_.Send(2, 'c', 10000));
  Settle();
  b_.endpoint->LetFetch(2);
  b_.endpoint->LetFetch(1);
  Settle();
  EXPECT_EQ(b_.received, "2cL ");
  ASSERT_TRUE(b_.Send(9, 'z', 1));  // says how far it is
  Settle();
  EXPECT_EQ(a_.delivered, 0u) << "the first was not read yet";
  b_.endpoint->LetFetch(0);
  Settle();
  EXPECT_EQ(b_.received, "2cL 1aL 1bL ");
  EXPECT_EQ(a_.delivered, 3u);
  ExpectNothingOut();
}

// The message of its stream has been read already: it is dropped all the same.
TEST_F(LargeMessagesTest, ACancelTakesAwayWhatWasReadAndWaits) {
  Start();
  b_.endpoint->set_hold_fetches(true);
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  ASSERT_TRUE(a_.Send(1, 'b', 10000, frame::Kind::kStreamData));
  Settle();
  b_.endpoint->LetFetch(1);
  Settle();
  ASSERT_TRUE(a_.Send(1, 'x', 0, frame::Kind::kCancel));
  Settle();
  EXPECT_EQ(b_.received, "");
  ExpectNothingOut();
}

TEST_F(LargeMessagesTest, WhatWasReadAndWaitsGoesWithItsPeer) {
  Start();
  b_.endpoint->set_hold_fetches(true);
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  ASSERT_TRUE(a_.Send(1, 'b', 10000, frame::Kind::kStreamData));
  Settle();
  b_.endpoint->LetFetch(1);
  Settle();
  EXPECT_EQ(b_.endpoint->large_out(), 1u);
  a_.endpoint->Kill();
  Settle();
  EXPECT_EQ(b_.endpoint->large_out(), 0u);
}

TEST_F(LargeMessagesTest, CountsOfWhatIsUnderWayGoDownAgain) {
  Start();
  for (uint32_t i = 0; i <= kMaxLent; ++i) {
    const auto buffer = a_.sessions.Reserve(a_.peer, 10000);
    ASSERT_TRUE(buffer.ok()) << "lent " << i;
    a_.sessions.Cancel(a_.peer, *buffer);
    ASSERT_TRUE(a_.Send(i, 'a', 10000));
    Settle();
  }
  EXPECT_EQ(b_.error, "");
  EXPECT_EQ(b_.sessions.counters().large_received, kMaxLent + 1);
  ExpectNothingOut();
}

// The device has refused it while it was being written into.
TEST_F(LargeMessagesTest, MemoryThatWasRefusedBeforeTheCommit) {
  Start();
  a_.endpoint->set_slow_lending(true);
  const auto buffer = a_.sessions.Reserve(a_.peer, 10000);
  ASSERT_TRUE(buffer.ok());
  a_.endpoint->FinishLending(absl::ResourceExhaustedError("memlock"));
  Settle();
  frame::Header header;
  header.kind = frame::Kind::kRequest;
  header.method_id = 1;
  header.call_id = 7;
  header.payload_bytes = 10000;
  a_.sessions.Commit(a_.peer, *buffer, header);
  Settle();
  EXPECT_EQ(a_.lost, "7memlock ");
  EXPECT_EQ(b_.received + b_.error, "");
  ExpectNothingOut();
}

// It was given up already, and something stands in its place that could not be sent yet.
TEST_F(LargeMessagesTest, DeathGivesWhatWasLostBackOnce) {
  Start();
  a_.endpoint->set_slow_lending(true);
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  const auto buffer = a_.sessions.Reserve(a_.peer, 10000);
  ASSERT_TRUE(buffer.ok());
  frame::Header header;
  header.kind = frame::Kind::kRequest;
  header.method_id = 1;
  header.call_id = 2;
  header.payload_bytes = 10000;
  a_.sessions.Commit(a_.peer, *buffer, header);
  a_.sessions.OnLent(a_.peer, buffer->large, absl::ResourceExhaustedError("memlock"));
  EXPECT_EQ(a_.lost, "2memlock ");
  b_.endpoint->Kill();
  Settle();
  EXPECT_EQ(a_.endpoint->large_out(), 0u);
  EXPECT_EQ(a_.endpoint->slots_out(), 0u);
  EXPECT_EQ(a_.sessions.counters().lent, 0u);
}

TEST_F(LargeMessagesTest, DeathOfOnePeerLeavesWhatIsLentToOthers) {
  Start();
  const PeerId b = a_.peer;
  End c;
  StartThird(&c);
  ASSERT_TRUE(a_.Send(1, 'c', 10000));  // c has no thread: it reads when it is polled
  a_.peer = b;
  b_.endpoint->set_hold_fetches(true);
  ASSERT_TRUE(a_.Send(2, 'b', 10000));
  Settle();
  b_.endpoint->Kill();
  Settle();
  EXPECT_EQ(a_.sessions.counters().lent, 1u);
  c.endpoint->Poll();
  c.endpoint->Poll();
  EXPECT_EQ(c.received, "1cL ");
  a_.endpoint->Poll();
  EXPECT_EQ(a_.sessions.counters().lent, 0u);
}

}  // namespace large_messages_test
}  // namespace sluice::session
