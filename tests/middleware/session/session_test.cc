// SPDX-License-Identifier: Apache-2.0
#include "middleware/session/session.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::session {
namespace session_test {

TEST(SessionTest, MessagesInOrderAreDelivered) {
  Links links;
  Session a;
  Session b;
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(b.Receive(a.Send(links, i)), Verdict::kDeliver);
  }
  EXPECT_EQ(b.next_expected(), 5u);
  EXPECT_EQ(a.next_to_send(), 5u);
  EXPECT_EQ(a.acknowledged(), 0u);
}

TEST(SessionTest, DuplicateIsADuplicate) {
  Session session;
  EXPECT_EQ(session.Receive(0), Verdict::kDeliver);
  EXPECT_EQ(session.Receive(0), Verdict::kDuplicate);
  EXPECT_EQ(session.Receive(1), Verdict::kDeliver);
  EXPECT_EQ(session.Receive(0), Verdict::kDuplicate);
  EXPECT_EQ(session.Receive(1), Verdict::kDuplicate);
  EXPECT_EQ(session.next_expected(), 2u);
}

TEST(SessionTest, GapIsAGapAndChangesNothing) {
  Session session;
  EXPECT_EQ(session.Receive(1), Verdict::kGap);
  EXPECT_EQ(session.next_expected(), 0u);
}

TEST(SessionTest, AcknowledgedSlotsAreReleasedOldestFirst) {
  Links links;
  Session session;
  for (const uint32_t slot : {7u, 3u, 5u}) session.Send(links, slot);
  std::vector<uint32_t> released;
  const auto release = [&](uint32_t slot) { released.push_back(slot); };
  EXPECT_EQ(session.Acknowledge(links, 2, release), Verdict::kDeliver);
  EXPECT_EQ(released, (std::vector<uint32_t>{7, 3}));
  EXPECT_EQ(session.Acknowledge(links, 2, release), Verdict::kDeliver);
  EXPECT_EQ(released.size(), 2u);
  EXPECT_EQ(session.outbox().size(), 1u);
}

TEST(SessionTest, AcknowledgementOfWhatWasNeverSentReleasesNothing) {
  Links links;
  Session session;
  session.Send(links, 0);
  const auto never = [](uint32_t) { ADD_FAILURE(); };
  EXPECT_EQ(session.Acknowledge(links, 2, never), Verdict::kBogusAck);
  EXPECT_EQ(session.Acknowledge(links, UINT32_MAX, never), Verdict::kBogusAck);
  EXPECT_EQ(session.acknowledged(), 0u);
}

TEST(SessionTest, NumbersWrap) {
  Links links;
  Session a(UINT32_MAX - 1);
  Session b(UINT32_MAX - 1);
  for (uint32_t i = 0; i < 5; ++i) {
    const uint32_t sequence = a.Send(links, i);
    EXPECT_EQ(b.Receive(sequence), Verdict::kDeliver) << sequence;
    EXPECT_EQ(b.Receive(sequence), Verdict::kDuplicate) << sequence;
    int released = 0;
    EXPECT_EQ(a.Acknowledge(links, b.next_expected(), [&](uint32_t) { ++released; }),
              Verdict::kDeliver);
    EXPECT_EQ(released, 1);
  }
  EXPECT_EQ(b.next_expected(), 3u);
}

TEST(SessionTest, EveryVerdictIsExplained) {
  EXPECT_NE(Explain(Verdict::kGap), Explain(Verdict::kBogusAck));
  EXPECT_EQ(Explain(static_cast<Verdict>(99)), "unknown verdict");
}

}  // namespace session_test
}  // namespace sluice::session
