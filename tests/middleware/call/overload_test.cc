// SPDX-License-Identifier: Apache-2.0
//
// A server that is asked for twice what it can do, in virtual time: what it refuses, it refuses as fast as it echoes, and
// what it takes is done in a bounded time.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/middleware/call/cluster.h"

namespace sluice::call {
namespace overload_test {

constexpr int64_t kPassNs = 1'000;  // what a pass of either engine takes here

class OverloadTest : public Cluster {
 protected:
  struct Timed {
    Outcome outcome;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };

  void Pass() {
    client_->Poll();
    clock_.Advance(kPassNs);
    nodes_[0]->engine->Poll();
    clock_.Advance(kPassNs);
    for (Timed& one : calls_) {
      if (one.outcome.ended == 1 && one.end_ns == 0) one.end_ns = clock_.NowNs();
    }
  }
  Timed& Begin(const Method& method) {
    Timed& call = calls_.emplace_back();
    call.begin_ns = clock_.NowNs();
    EXPECT_TRUE(Start(&call.outcome, method).ok());
    client_->Flush();
    return call;
  }

  std::deque<Timed> calls_;
};

TEST_F(OverloadTest, RefusalAtTwiceTheCapacityIsAsFastAsAnEcho) {
  constexpr int64_t kServiceNs = 100 * kPassNs;  // one call at a time
  server_options_.max_concurrent_calls = 8;
  fake_options_.credits = 64;
  options_.retry.max_attempts = 1;
  Connect(1);
  Timed& echo = Begin(kOnce);
  while (echo.outcome.ended == 0) Pass();
  const int64_t echo_ns = echo.end_ns - echo.begin_ns;
  calls_.clear();

  int64_t next_arrival_ns = clock_.NowNs();
  int64_t busy_until_ns = clock_.NowNs();
  const int64_t over_ns = clock_.NowNs() + 500 * kServiceNs;
  while (clock_.NowNs() < over_ns) {
    if (clock_.NowNs() >= next_arrival_ns) {
      Begin(kHold);
      next_arrival_ns += kServiceNs / 2;
    }
    std::vector<ServerCall*>& held = nodes_[0]->held;
    if (clock_.NowNs() >= busy_until_ns && !held.empty()) {
      ServerCall* const done = held.front();
      held.erase(held.begin());
      done->Finish(absl::OkStatus());
      busy_until_ns = clock_.NowNs() + kServiceNs;
    }
    Pass();
  }
  int done = 0;
  int refused = 0;
  int64_t slowest_refusal_ns = 0;
  int64_t slowest_call_ns = 0;
  for (const Timed& one : calls_) {
    if (one.outcome.ended == 0) continue;  // one of the last
    const int64_t took_ns = one.end_ns - one.begin_ns;
    if (one.outcome.status.ok()) {
      ++done;
      slowest_call_ns = std::max(slowest_call_ns, took_ns);
    } else {
      ASSERT_EQ(one.outcome.status.code(), absl::StatusCode::kResourceExhausted)
          << one.outcome.status;
      ++refused;
      slowest_refusal_ns = std::max(slowest_refusal_ns, took_ns);
    }
  }
  EXPECT_GE(done, 450) << "it does what it can";
  EXPECT_GE(refused, 450) << "and no more";
  EXPECT_LT(slowest_refusal_ns, 2 * echo_ns);
  EXPECT_LE(slowest_call_ns, (8 + 1) * kServiceNs + 2 * echo_ns) << "the queue is bounded";
}

}  // namespace overload_test
}  // namespace sluice::call
