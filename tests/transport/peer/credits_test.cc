// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/credits.h"

#include <deque>

#include "gtest/gtest.h"
#include "transport/base/random.h"

namespace sluice::peer {
namespace credits_test {

TEST(SendCredits, GrantsAreCumulativeAndIdempotent) {
  SendCredits credits;
  credits.Start(4);
  for (int i = 0; i < 4; ++i) credits.Use();
  EXPECT_EQ(credits.available(), 0u);
  EXPECT_EQ(credits.under_way(4), 4u);
  EXPECT_TRUE(credits.Grant(6, 4));
  EXPECT_FALSE(credits.Grant(6, 4));  // nothing new
  EXPECT_EQ(credits.available(), 2u);
  EXPECT_EQ(credits.acknowledged(4), 2u);
  EXPECT_EQ(credits.under_way(4), 2u);
  EXPECT_FALSE(credits.Grant(5, 4));  // old
  EXPECT_FALSE(credits.Grant(9, 4));  // five messages of four that were sent
  EXPECT_EQ(credits.available(), 2u);
  credits.Return();
  EXPECT_EQ(credits.available(), 3u);
}

TEST(SendCredits, NewsIsWhatGrantTakes) {
  constexpr uint32_t kWindow = 4;
  for (const uint32_t used : {0u, 1u, 3u, 4u}) {
    for (uint32_t granted = 0; granted < 12; ++granted) {
      SendCredits credits;
      credits.Start(kWindow);
      for (uint32_t i = 0; i < used; ++i) credits.Use();
      const bool news = credits.IsNews(granted, kWindow);
      EXPECT_EQ(news, granted > kWindow && granted <= kWindow + used) << granted << " " << used;
      EXPECT_EQ(credits.Grant(granted, kWindow), news);
      EXPECT_EQ(credits.granted(), news ? granted : kWindow);
    }
  }
}

TEST(SendCredits, TheWindowInUseLimitsBesideTheGrant) {
  SendCredits credits;
  credits.Start(16, 3);
  EXPECT_EQ(credits.window(16), 3u);
  EXPECT_EQ(credits.available(), 3u);
  for (int i = 0; i < 3; ++i) credits.Use();
  EXPECT_EQ(credits.available(), 0u);
  EXPECT_EQ(credits.under_way(16), 3u);
  EXPECT_FALSE(credits.Grant(20, 16));  // four of three
  EXPECT_TRUE(credits.Grant(18, 16));
  EXPECT_EQ(credits.acknowledged(16), 2u);
  EXPECT_EQ(credits.available(), 2u);
}

TEST(SendCredits, WithoutAWindowNothingMayBeSentWhateverIsAcknowledged) {
  SendCredits credits;
  credits.Start(16, 4);
  for (int i = 0; i < 3; ++i) credits.Use();
  credits.Resize(16, 0);
  EXPECT_EQ(credits.window(16), 0u);
  EXPECT_EQ(credits.available(), 0u);
  EXPECT_EQ(credits.under_way(16), 3u);
  for (uint32_t granted = 17; granted <= 19; ++granted) {
    EXPECT_TRUE(credits.Grant(granted, 16));
    EXPECT_EQ(credits.available(), 0u);
  }
  EXPECT_EQ(credits.under_way(16), 0u);
  credits.Resize(16, 7);
  EXPECT_EQ(credits.available(), 7u);
  EXPECT_EQ(credits.limit() - credits.used(), 7u);
}

TEST(ReceiveCredits, ReportIsDueAfterHalfOfTheWindowInUse) {
  ReceiveCredits credits;
  credits.Start(64);
  credits.Resize(4);
  credits.Consumed();
  EXPECT_FALSE(credits.ReportIsDue());
  credits.Consumed();
  EXPECT_TRUE(credits.ReportIsDue());
  EXPECT_EQ(credits.Report(64), 66u);
  EXPECT_FALSE(credits.ReportIsDue());
}

TEST(ReceiveCredits, APeerWithoutAWindowIsOverdrawnByOneMessage) {
  ReceiveCredits credits;
  credits.Start(2);
  EXPECT_TRUE(credits.DataArrived(1, 8));
  credits.Consumed();
  credits.Report(8);
  credits.Resize(0);
  // A copy, of which the peer may have several: it is not taken.
  EXPECT_TRUE(credits.DataArrived(2, 8));
  credits.Consumed();
  credits.Unconsumed();
  EXPECT_FALSE(credits.overdrawn());
  EXPECT_EQ(credits.limit(), 1u);
  credits.Consumed();
  EXPECT_TRUE(credits.overdrawn());
}

TEST(ReceiveCredits, AnotherWindowBoundsFromTheNextLookOn) {
  ReceiveCredits credits;
  credits.Start(0);
  EXPECT_TRUE(credits.ControlArrived(1, 8));  // it asks
  credits.Report(8);
  credits.Resize(3);
  EXPECT_TRUE(credits.DataArrived(1, 8));  // it was sent before the grant
  EXPECT_EQ(credits.limit(), 0u);
  EXPECT_TRUE(credits.DataArrived(2, 8));
  EXPECT_EQ(credits.limit(), 3u);
  EXPECT_EQ(credits.last_look(), 2);
}

// A peer that was granted a window is not the one that was silent for longest.
TEST(ReceiveCredits, TouchCountsAsAMessageAndGrantsNothing) {
  ReceiveCredits credits;
  credits.Start(0);
  credits.Touch(0);
  EXPECT_EQ(credits.last_look(), 0);
  credits.Touch(7);
  EXPECT_EQ(credits.last_look(), 7);
  credits.Resize(3);
  EXPECT_TRUE(credits.DataArrived(7, 8));  // it was sent before the grant
  credits.Consumed();
  EXPECT_TRUE(credits.overdrawn());
}

TEST(ReceiveCredits, WhatWasTakenIsUnreportedUntilAReport) {
  ReceiveCredits credits;
  credits.Start(64);
  EXPECT_FALSE(credits.unreported());
  credits.Consumed();
  EXPECT_TRUE(credits.unreported());
  credits.Report(64);
  EXPECT_FALSE(credits.unreported());
}

TEST(ReceiveCredits, ReportIsDueAfterHalfTheWindow) {
  ReceiveCredits credits;
  credits.Start(5);
  for (int i = 0; i < 2; ++i) credits.Consumed();
  EXPECT_FALSE(credits.ReportIsDue());
  credits.Consumed();
  EXPECT_TRUE(credits.ReportIsDue());
  EXPECT_EQ(credits.Report(5), 8u);
  EXPECT_FALSE(credits.ReportIsDue());
}

TEST(ReceiveCredits, MessagesOfOneLookAreCoveredByGrantsBeforeItOnly) {
  ReceiveCredits credits;
  credits.Start(2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(credits.DataArrived(1, 2));
    credits.Consumed();
    EXPECT_FALSE(credits.overdrawn());
    credits.Report(2);
  }
  EXPECT_TRUE(credits.DataArrived(1, 2));
  credits.Consumed();
  EXPECT_TRUE(credits.overdrawn());
  credits.LeaveLook();  // had it not come by a look
  EXPECT_FALSE(credits.overdrawn());
  EXPECT_TRUE(credits.DataArrived(2, 2));
  EXPECT_EQ(credits.limit(), 4u);
}

TEST(ReceiveCredits, CopiesAndControlOfOneLookAreCounted) {
  ReceiveCredits credits;
  credits.Start(3);
  for (uint32_t i = 0; i < 3 * ReceiveCredits::kMaxCopies; ++i) {
    EXPECT_TRUE(credits.DataArrived(7, 3));
  }
  EXPECT_FALSE(credits.DataArrived(7, 3));
  EXPECT_TRUE(credits.DataArrived(8, 3));
  for (uint32_t i = 0; i < ReceiveCredits::MostControl(5); ++i) {
    EXPECT_TRUE(credits.ControlArrived(8, 5));
  }
  EXPECT_FALSE(credits.ControlArrived(8, 5));
  credits.ForgetLook();  // numbers begin again
  EXPECT_TRUE(credits.ControlArrived(8, 5));
}

// A sender and a receiver over a channel that loses, repeats and delays reports, across the wrap of
// the counters: never more under way than the window, and never stuck.
TEST(Credits, WindowHoldsUnderLossAndWrap) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    base::SeededRandom random(seed);
    const uint32_t window = 2 + static_cast<uint32_t>(random.Below(63));
    SendCredits send;
    ReceiveCredits receive;
    send.Start(window);
    receive.Start(window);
    uint32_t under_way = 0;
    uint64_t delivered = 0;
    std::deque<uint32_t> reports;
    for (int step = 0; step < 20'000; ++step) {
      if (send.available() > 0 && random.Below(2) == 0) {
        send.Use();
        ++under_way;
      }
      ASSERT_LE(under_way, window);
      if (under_way > 0 && random.Below(2) == 0) {
        --under_way;
        ++delivered;
        receive.Consumed();
        if (random.Below(3) == 0) reports.push_back(receive.Report(window));  // with some message
        if (receive.ReportIsDue()) reports.push_back(receive.Report(window));
      }
      if (!reports.empty() && random.Below(2) == 0) {
        send.Grant(reports.front(), window);
        if (random.Below(4) != 0) reports.pop_front();  // else it comes again
      }
    }
    EXPECT_GT(delivered, 3'000u);
  }
}

}  // namespace credits_test
}  // namespace sluice::peer
