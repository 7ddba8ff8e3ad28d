// SPDX-License-Identifier: Apache-2.0
#include "transport/base/event_log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/kept_log.h"
#include "tests/support/manual_clock.h"

namespace sluice::base {
namespace event_log_test {

using testing_support::KeptLog;
using testing_support::ManualClock;

TEST(EventLogTest, WhatIsSaidArrivesWhole) {
  KeptLog kept;
  ManualClock clock;
  EventLog log("call", &kept, &clock);
  EXPECT_TRUE(log.listens());
  log.Say(Severity::kError, "connection lost", "a:1", "lost: why");
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].severity, Severity::kError);
  EXPECT_EQ(kept[0].room, "call");
  EXPECT_EQ(kept[0].event, "connection lost");
  EXPECT_EQ(kept[0].peer, "a:1");
  EXPECT_EQ(kept[0].message, "lost: why");
  EXPECT_EQ(kept[0].left_out, 0u);
}

TEST(EventLogTest, OfOneEventEightAtOnceThenOneASecond) {
  KeptLog kept;
  ManualClock clock;
  EventLog log("call", &kept, &clock);
  for (int i = 0; i < 100; ++i) log.Say(Severity::kWarning, "refused", "a:1", "no");
  ASSERT_EQ(kept.size(), 8u);
  log.Say(Severity::kWarning, "another", "a:1", "no");
  EXPECT_EQ(kept.size(), 9u) << "each event has a count of its own";
  clock.Advance(999'999'999);
  log.Say(Severity::kWarning, "refused", "a:1", "no");
  EXPECT_EQ(kept.size(), 9u);
  clock.Advance(1);
  log.Say(Severity::kWarning, "refused", "a:1", "no");
  log.Say(Severity::kWarning, "refused", "a:1", "no");
  ASSERT_EQ(kept.size(), 10u);
  EXPECT_EQ(kept[9].left_out, 93u);
  clock.Advance(3'000'000'000);
  for (int i = 0; i < 100; ++i) log.Say(Severity::kWarning, "refused", "a:1", "no");
  ASSERT_EQ(kept.size(), 13u);
  EXPECT_EQ(kept[10].left_out, 1u);
  EXPECT_EQ(kept[11].left_out, 0u);
  clock.Advance(60'000'000'000);
  for (int i = 0; i < 100; ++i) log.Say(Severity::kWarning, "refused", "a:1", "no");
  EXPECT_EQ(kept.size(), 21u) << "never more than eight at once";
}

TEST(EventLogTest, WithoutASinkNothingIsSaid) {
  ManualClock clock;
  EventLog log("call", nullptr, &clock);
  EXPECT_FALSE(log.listens());
  log.Say(Severity::kError, "refused", "", "no");
}

TEST(StderrLogTest, OneLineWithWhatWasLeftOut) {
  testing::internal::CaptureStderr();
  StderrLog log;
  log.Write({Severity::kWarning, "call", "refused", "a:1", "a:1 refused"});
  log.Write({Severity::kError, "endpoint", "refused", "", "once more", 3});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "sluice: warning: call: a:1 refused\n"
            "sluice: error: endpoint: once more (and 3 like it before)\n");
}

}  // namespace event_log_test
}  // namespace sluice::base
