// SPDX-License-Identifier: Apache-2.0
#include "transport/poller/poller.h"

#include <poll.h>
#include <unistd.h>

#include <thread>

#include "gtest/gtest.h"

namespace sluice::poller {
namespace {

bool Readable(int fd) {
  pollfd sleeper = {fd, POLLIN, 0};
  return poll(&sleeper, 1, 0) == 1;
}

TEST(PollerCheck, CallsOnlyThoseThatAreReady) {
  auto poller = Poller::Create();
  ASSERT_TRUE(poller.ok());
  int a[2], b[2];
  ASSERT_EQ(pipe(a), 0);
  ASSERT_EQ(pipe(b), 0);
  int a_calls = 0, b_calls = 0;
  char byte;
  ASSERT_TRUE(
      (*poller)->Watch(a[0], [&] { a_calls += static_cast<int>(read(a[0], &byte, 1)); }).ok());
  ASSERT_TRUE(
      (*poller)->Watch(b[0], [&] { b_calls += static_cast<int>(read(b[0], &byte, 1)); }).ok());
  EXPECT_EQ((*poller)->Check(), 0);
  ASSERT_EQ(write(b[1], "x", 1), 1);
  EXPECT_TRUE(Readable((*poller)->fd()));
  EXPECT_EQ((*poller)->Check(), 1);
  EXPECT_EQ(a_calls, 0);
  EXPECT_EQ(b_calls, 1);
  EXPECT_FALSE(Readable((*poller)->fd()));
  (*poller)->Unwatch(b[0]);
  ASSERT_EQ(write(b[1], "x", 1), 1);
  EXPECT_EQ((*poller)->Check(), 0);
  for (int fd : {a[0], a[1], b[0], b[1]}) close(fd);
}

TEST(PollerWatch, BoundIsSaid) {
  auto poller = Poller::Create();
  ASSERT_TRUE(poller.ok());
  int fds[2 * Poller::kMaxWatches];
  absl::Status last;
  for (int i = 0; i < Poller::kMaxWatches; ++i) {
    ASSERT_EQ(pipe(&fds[2 * i]), 0);
    last = (*poller)->Watch(fds[2 * i], [] {});
  }
  EXPECT_FALSE(last.ok());  // its own eventfd is the first
  for (int fd : fds) close(fd);
}

TEST(PollerWake, FromAnotherThreadAndOncePerCheck) {
  auto created = Poller::Create();
  ASSERT_TRUE(created.ok());
  Poller& poller = **created;
  constexpr int kRounds = 2'000;
  std::atomic<int> asked{0};
  int seen = 0;
  std::thread waker([&] {
    for (int i = 1; i <= kRounds; ++i) {
      asked.store(i, std::memory_order_relaxed);
      poller.Wake();
    }
  });
  // What is written before Wake() is seen after the Check() that it causes; none is lost, so this
  // ends.
  while (seen < kRounds) {
    pollfd sleeper = {poller.fd(), POLLIN, 0};
    poll(&sleeper, 1, -1);
    poller.Check();
    seen = asked.load(std::memory_order_relaxed);
  }
  waker.join();
}

}  // namespace
}  // namespace sluice::poller
