// SPDX-License-Identifier: Apache-2.0
#include "middleware/observe/call_stats.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "middleware/observe/slow_calls.h"
#include "middleware/observe/trace_events.h"

namespace sluice::observe {
namespace {

TEST(CallStatsTest, CountsByMethodAndCode) {
  CallStats stats;
  MethodStats* const say = stats.Of(1, "/a.B/Say");
  MethodStats* const sing = stats.Of(1 + (uint64_t{128} << 32), "/a.B/Sing");  // the same place
  ASSERT_NE(say, sing);
  EXPECT_EQ(stats.Of(1, "/a.B/Say"), say);
  stats.Of(3, "/a.B/Never");
  for (int i = 0; i < 5; ++i) say->CountStart();
  say->CountEnd(absl::OkStatus());
  say->CountEnd(absl::OkStatus());
  say->CountEnd(absl::UnavailableError("gone"));
  say->CountError(static_cast<absl::StatusCode>(99));
  say->CountRequestBytes(10);
  say->CountReplyBytes(20);
  say->RecordLatency(1000, 2);
  sing->CountStart();
  sing->CountStreamSent();
  sing->CountStreamReceived();

  const auto snapshots = stats.Snapshot();
  ASSERT_EQ(snapshots.size(), 2u);
  EXPECT_EQ(snapshots[0].method, "/a.B/Say");
  EXPECT_EQ(snapshots[0].started, 5u);
  EXPECT_EQ(snapshots[0].ended[0], 2u);
  EXPECT_EQ(snapshots[0].ended[static_cast<int>(absl::StatusCode::kUnavailable)], 1u);
  EXPECT_EQ(snapshots[0].ended[static_cast<int>(absl::StatusCode::kUnknown)], 1u);
  EXPECT_EQ(snapshots[0].in_flight(), 1u);
  EXPECT_EQ(snapshots[0].request_bytes, 10u);
  EXPECT_EQ(snapshots[0].reply_bytes, 20u);
  EXPECT_EQ(snapshots[0].latency_ns.count(), 2u);
  EXPECT_EQ(snapshots[1].method, "/a.B/Sing");
  EXPECT_EQ(snapshots[1].stream_messages_sent, 1u);
  EXPECT_EQ(snapshots[1].stream_messages_received, 1u);
}

TEST(CallStatsTest, MethodsAboveTheBoundAreCountedTogether) {
  CallStats stats;
  for (uint64_t id = 1; id <= CallStats::kMaxMethods + 10; ++id) {
    stats.Of(id << 32 | 1, ("/a.B/M" + std::to_string(id)).c_str())->CountStart();
  }
  const auto snapshots = stats.Snapshot();
  ASSERT_EQ(snapshots.size(), CallStats::kMaxMethods + 1);
  EXPECT_EQ(snapshots.back().method, kOtherMethods);
  EXPECT_EQ(snapshots.back().started, 10u);
  EXPECT_EQ(snapshots.front().started, 1u);
}

TEST(CallStatsTest, AnotherThreadReadsWhileItCounts) {
  CallStats stats;
  std::atomic<bool> stop{false};
  std::thread engine([&] {
    for (uint64_t i = 0; !stop.load(); ++i) {
      MethodStats* method = stats.Of((i % 8 + 1) << 32, "/a.B/M");
      method->CountStart();
      method->CountEnd(absl::OkStatus());
    }
  });
  uint64_t seen = 0;
  while (seen < 10'000) {
    seen = 0;
    for (const MethodSnapshot& snapshot : stats.Snapshot()) {
      EXPECT_GE(snapshot.started, snapshot.ended[0]);
      seen += snapshot.started;
    }
  }
  stop.store(true);
  engine.join();
}

TEST(SlowCallsTest, KeepsTheLast) {
  SlowCalls slow;
  for (size_t i = 0; i < SlowCalls::kKept + 3; ++i) {
    slow.Add({.method = std::to_string(i)});
  }
  EXPECT_EQ(slow.seen(), SlowCalls::kKept + 3);
  ASSERT_EQ(slow.kept().size(), SlowCalls::kKept);
  EXPECT_EQ(slow.kept().front().method, "3");
}

TEST(SlowCallsTest, ATenantThatHasManyHidesNobodyElses) {
  SlowCalls slow;
  slow.Add({.method = "eldest", .received_ns = 1, .tenant = "red"});
  for (size_t i = 0; i < 2 * SlowCalls::kKept; ++i) {
    slow.Add({.method = "many", .received_ns = 2, .tenant = "blue"});
  }
  slow.Add({.method = "last", .received_ns = 3, .tenant = "red"});
  const std::vector<SlowCall> kept = slow.kept();
  ASSERT_EQ(kept.size(), SlowCalls::kKept + 2);
  EXPECT_EQ(kept.front().method, "eldest");
  EXPECT_EQ(kept[1].tenant, "blue");
  EXPECT_EQ(kept.back().method, "last");
  EXPECT_EQ(slow.seen(), 2 * SlowCalls::kKept + 2);
}

TEST(TraceEventsTest, EachHasAName) {
  for (int event = 1; event <= static_cast<int>(TraceEvent::kPeerDown); ++event) {
    EXPECT_STRNE(Name(static_cast<TraceEvent>(event)), "?");
  }
  EXPECT_STREQ(Name(static_cast<TraceEvent>(0)), "?");
  EXPECT_STREQ(Name(static_cast<TraceEvent>(99)), "?");
}

}  // namespace
}  // namespace sluice::observe
