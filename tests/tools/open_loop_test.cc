// SPDX-License-Identifier: Apache-2.0
//
// The load of `sluice_perf rpc --rate`, in virtual time: against a server that answers one call after the other, and
// stands still now and then.
#include "tools/open_loop.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::tools {
namespace open_loop_test {

constexpr int64_t kMicrosecond = 1'000;
constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kSecond = 1'000'000'000;

// Takes so long for each call, one after the other; from `stall_at_ns` on it does nothing for a while.
struct Server {
  int64_t service_ns = 10 * kMicrosecond;
  int64_t stall_at_ns = INT64_MAX;
  int64_t stall_ns = 0;
  int64_t free_ns = 0;

  int64_t AnswerNs(int64_t now_ns) {
    int64_t begin_ns = std::max(now_ns, free_ns);
    if (begin_ns >= stall_at_ns && begin_ns < stall_at_ns + stall_ns) {
      begin_ns = stall_at_ns + stall_ns;
    }
    return free_ns = begin_ns + service_ns;
  }
};

// From event to event: the next start if there is a place, or the next answer.
void RunOpen(OpenLoop* loop, uint32_t places, Server server) {
  struct Call {
    int64_t intended_ns;
    int64_t answer_ns;
  };
  std::deque<Call> under_way;
  int64_t now_ns = 0;
  while (!loop->done()) {
    const int64_t start_ns =
        loop->outstanding() == places ? INT64_MAX : std::max(loop->NextNs(), now_ns);
    const int64_t answer_ns = under_way.empty() ? INT64_MAX : under_way.front().answer_ns;
    now_ns = std::min(start_ns, answer_ns);
    while (!under_way.empty() && under_way.front().answer_ns <= now_ns) {
      loop->End(under_way.front().intended_ns, now_ns, true);
      under_way.pop_front();
    }
    loop->StartDue(now_ns, [&](int64_t intended_ns) {
      under_way.push_back({intended_ns, server.AnswerNs(now_ns)});
    });
  }
}

// The same server, asked again when it has answered: what sluice_perf does without --rate.
base::Histogram RunClosed(int64_t duration_ns, Server server) {
  base::Histogram latencies_ns;
  for (int64_t now_ns = 0; now_ns < duration_ns;) {
    const int64_t answer_ns = server.AnswerNs(now_ns);
    latencies_ns.Record(answer_ns - now_ns);
    now_ns = answer_ns;
  }
  return latencies_ns;
}

TEST(OpenLoop, CallsStartByTheScheduleAndTakeWhatTheServerTakes) {
  OpenLoop loop({.per_second = 10'000, .duration_ns = kSecond});
  RunOpen(&loop, 1'024, {});
  EXPECT_EQ(loop.scheduled(), 10'000u);
  EXPECT_EQ(loop.started(), 10'000u);
  EXPECT_EQ(loop.latencies_ns().count(), 10'000u);
  EXPECT_EQ(loop.latencies_ns().max(), 10 * kMicrosecond);
}

TEST(OpenLoop, AStallOfTheServerShowsInP999AndAClosedLoopHidesIt) {
  const Server stalls{.stall_at_ns = 4 * kSecond, .stall_ns = 100 * kMillisecond};
  for (const uint32_t places : {1'024u, 8u, 1u}) {
    SCOPED_TRACE(places);
    OpenLoop loop({.per_second = 10'000, .duration_ns = 10 * kSecond, .most_outstanding = places});
    RunOpen(&loop, places, stalls);
    EXPECT_EQ(loop.latencies_ns().count(), 100'000u);
    EXPECT_GT(loop.latencies_ns().Quantile(0.999), 50 * kMillisecond)
        << "a thousand calls were to start in that time, however few places there are";
    EXPECT_LT(loop.latencies_ns().Quantile(0.5), 20 * kMicrosecond);
  }
  const base::Histogram closed = RunClosed(10 * kSecond, stalls);
  EXPECT_LT(closed.Quantile(0.999), 20 * kMicrosecond) << "one call in a million saw it";
}

TEST(OpenLoop, WhoCannotKeepUpFallsBehindMoreAndMore) {
  OpenLoop loop({.per_second = 10'000, .duration_ns = kSecond, .most_outstanding = 4});
  RunOpen(&loop, 4, {.service_ns = 200 * kMicrosecond});  // half of what is asked for
  EXPECT_EQ(loop.latencies_ns().count(), 10'000u);
  EXPECT_GT(loop.latencies_ns().Quantile(0.99), 900 * kMillisecond);
  EXPECT_GT(loop.latencies_ns().Quantile(0.5), 400 * kMillisecond);
}

TEST(OpenLoop, NothingStartsEarlyOrBeyondItsPlaces) {
  OpenLoop loop(
      {.per_second = 1'000, .start_ns = 500, .duration_ns = kSecond, .most_outstanding = 2});
  std::vector<int64_t> intended_ns;
  const auto start = [&](int64_t ns) { intended_ns.push_back(ns); };
  loop.StartDue(499, start);
  EXPECT_TRUE(intended_ns.empty());
  EXPECT_EQ(loop.NextNs(), 500);
  loop.StartDue(500 + 10 * kMillisecond, start);
  EXPECT_EQ(intended_ns, (std::vector<int64_t>{500, 500 + kMillisecond}));
  EXPECT_EQ(loop.outstanding(), 2u);
  loop.End(500, 500 + 10 * kMillisecond, false);
  EXPECT_EQ(loop.latencies_ns().count(), 0u) << "failures have no latency";
  loop.StartDue(500 + 10 * kMillisecond, start);
  EXPECT_EQ(intended_ns.back(), 500 + 2 * kMillisecond) << "as it was meant, though it is late";
}

}  // namespace open_loop_test
}  // namespace sluice::tools
