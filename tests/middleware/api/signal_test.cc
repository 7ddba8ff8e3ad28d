// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/signal.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace signal_test {

Task<void> WaitTwice(Signal* signal, std::stop_token stop, std::vector<int>* log, int name) {
  co_await signal->Wait(stop);
  log->push_back(name);
  co_await signal->Wait(stop);
  log->push_back(name + 10);
}

TEST(SignalTest, NotifyAllTellsThoseWhoWaitOnce) {
  Signal signal;
  std::vector<int> log;
  for (int name : {1, 2, 3}) Spawn(WaitTwice(&signal, {}, &log, name), [] {});
  EXPECT_TRUE(log.empty());
  signal.NotifyAll();
  EXPECT_EQ(log, (std::vector<int>{3, 2, 1})) << "who waits again is not told again";
  signal.NotifyAll();
  EXPECT_EQ(log.size(), 6u);
  signal.NotifyAll();
  EXPECT_EQ(log.size(), 6u);
}

TEST(SignalTest, StopEndsTheWaitingOfOne) {
  Signal signal;
  std::vector<int> log;
  std::stop_source stop;
  for (int name : {1, 2, 3}) {
    Spawn(WaitTwice(&signal, name == 2 ? stop.get_token() : std::stop_token(), &log, name), [] {});
  }
  stop.request_stop();
  EXPECT_EQ(log, (std::vector<int>{2, 12})) << "and it does not wait any more";
  signal.NotifyAll();
  EXPECT_EQ(log, (std::vector<int>{2, 12, 3, 1}));
  signal.NotifyAll();
}

TEST(SignalTest, OneWhoWaitsMayBeDestroyed) {
  Signal signal;
  std::vector<int> log;
  {
    Task<void> task = WaitTwice(&signal, {}, &log, 1);
    auto awaiter = task.operator co_await();
    awaiter.await_suspend(std::noop_coroutine()).resume();
  }
  signal.NotifyAll();
  EXPECT_TRUE(log.empty());
}

}  // namespace signal_test
}  // namespace sluice
