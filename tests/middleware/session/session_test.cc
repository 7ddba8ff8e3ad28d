// SPDX-License-Identifier: Apache-2.0
#include "middleware/session/session.h"

#include <gtest/gtest.h>

namespace sluice::session {
namespace {

TEST(SessionTest, TwoSidesTalkInOrder) {
  Session a;
  Session b;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(b.Receive(a.TakeSequence(), a.acknowledgement()), Verdict::kDeliver);
    EXPECT_EQ(a.Receive(b.TakeSequence(), b.acknowledgement()), Verdict::kDeliver);
  }
  EXPECT_EQ(a.unacknowledged(), 0u);
  EXPECT_EQ(b.unacknowledged(), 1u);  // of the last answer nobody has spoken yet
}

TEST(SessionTest, DuplicateIsDroppedAndCounted) {
  Session session;
  EXPECT_EQ(session.Receive(0, 0), Verdict::kDeliver);
  EXPECT_EQ(session.Receive(0, 0), Verdict::kDuplicate);
  EXPECT_EQ(session.Receive(1, 0), Verdict::kDeliver);
  EXPECT_EQ(session.Receive(0, 0), Verdict::kDuplicate);
  EXPECT_EQ(session.Receive(1, 0), Verdict::kDuplicate);
  EXPECT_EQ(session.duplicates(), 3u);
  EXPECT_EQ(session.acknowledgement(), 2u);
}

TEST(SessionTest, GapIsAGap) {
  Session session;
  EXPECT_EQ(session.Receive(1, 0), Verdict::kGap);
  EXPECT_EQ(session.acknowledgement(), 0u);
}

TEST(SessionTest, AcknowledgementOfWhatWasNeverSent) {
  Session session;
  session.TakeSequence();
  EXPECT_EQ(session.Receive(0, 2), Verdict::kBogusAck);
  EXPECT_EQ(session.Receive(0, UINT32_MAX), Verdict::kBogusAck);
  EXPECT_EQ(session.Receive(0, 1), Verdict::kDeliver);
  EXPECT_EQ(session.Receive(1, 0), Verdict::kBogusAck) << "it was acknowledged before";
}

TEST(SessionTest, NumbersWrap) {
  Session a(UINT32_MAX - 1);
  Session b(UINT32_MAX - 1);
  for (int i = 0; i < 5; ++i) {
    const uint32_t sequence = a.TakeSequence();
    EXPECT_EQ(b.Receive(sequence, a.acknowledgement()), Verdict::kDeliver) << sequence;
    EXPECT_EQ(b.Receive(sequence, a.acknowledgement()), Verdict::kDuplicate) << sequence;
    EXPECT_EQ(a.Receive(b.TakeSequence(), b.acknowledgement()), Verdict::kDeliver);
  }
  EXPECT_EQ(b.acknowledgement(), 3u);
}

TEST(SessionTest, EveryVerdictIsExplained) {
  EXPECT_NE(Explain(Verdict::kGap), Explain(Verdict::kBogusAck));
  EXPECT_EQ(Explain(static_cast<Verdict>(99)), "unknown verdict");
}

}  // namespace
}  // namespace sluice::session
