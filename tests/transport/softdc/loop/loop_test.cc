// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/loop/loop.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <future>
#include <memory>
#include <vector>

namespace sluice::softdc {
namespace loop_test {

TEST(LoopRunTest, TasksRunOnTheLoopInOrder) {
  Loop& loop = Loop::Get();
  std::vector<int> order;
  bool all_on_loop = true;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(loop.Run([&, i] {
      order.push_back(i);
      all_on_loop = all_on_loop && loop.OnLoop();
    }));
  }
  loop.RunAndWait([] {});
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
  EXPECT_TRUE(all_on_loop);
  EXPECT_FALSE(loop.OnLoop());
}

TEST(LoopRunTest, RefusesWhenTooManyTasksWait) {
  Loop& loop = Loop::Get();
  std::promise<void> entered, go;
  loop.Run([&] {
    entered.set_value();
    go.get_future().wait();
  });
  entered.get_future().wait();
  size_t taken = 0;
  while (loop.Run([] {})) ++taken;
  EXPECT_EQ(taken, Loop::kMaxTasks);
  go.set_value();
  loop.RunAndWait([] {});
  EXPECT_TRUE(loop.Run([] {}));
}

TEST(LoopRunTest, RunAndWaitOnTheLoopItselfDoesNotDeadlock) {
  Loop& loop = Loop::Get();
  bool inner = false;
  loop.RunAndWait([&] { loop.RunAndWait([&] { inner = true; }); });
  EXPECT_TRUE(inner);
}

TEST(LoopAfterTest, TimersRunByDeadlineNotByOrderOfTheCalls) {
  Loop& loop = Loop::Get();
  std::vector<int> order;
  std::promise<void> done;
  const int64_t start_ns = Loop::NowNs();
  int64_t last_ns = 0;
  loop.RunAndWait([&] {
    loop.After(3'000'000, [&] {
      order.push_back(3);
      last_ns = Loop::NowNs();
      done.set_value();
    });
    loop.After(1'000'000, [&] { order.push_back(1); });
    loop.After(2'000'000, [&] { order.push_back(2); });
  });
  done.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_GE(last_ns - start_ns, 3'000'000);
}

TEST(LoopAfterTest, ShorterTimerFromOutsideInterruptsALongSleep) {
  Loop& loop = Loop::Get();
  const uint64_t hour = loop.After(3'600'000'000'000, [] {});
  std::promise<void> done;
  loop.After(1000, [&] { done.set_value(); });
  done.get_future().wait();
  EXPECT_TRUE(loop.Cancel(hour));
}

TEST(LoopCancelTest, CancelledTimerNeverRunsAndSaysSo) {
  Loop& loop = Loop::Get();
  std::atomic<bool> ran{false};
  std::promise<void> later;
  const uint64_t id = loop.After(2'000'000, [&] { ran = true; });
  EXPECT_TRUE(loop.Cancel(id));
  EXPECT_FALSE(loop.Cancel(id));
  const uint64_t after = loop.After(3'000'000, [&] { later.set_value(); });
  later.get_future().wait();
  EXPECT_FALSE(ran);
  EXPECT_FALSE(loop.Cancel(after));  // it has run
}

TEST(LoopWatchTest, CallbackRunsWhenTheDescriptorBecomesReadable) {
  Loop& loop = Loop::Get();
  UniqueFd event(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  std::promise<uint32_t> seen;
  ASSERT_EQ(loop.Watch(event.get(), EPOLLIN,
                       [&](uint32_t events) {
                         uint64_t value;
                         if (read(event.get(), &value, sizeof(value)) > 0) seen.set_value(events);
                       }),
            0);
  EXPECT_EQ(loop.Watch(event.get(), EPOLLIN, [](uint32_t) {}), EEXIST);
  eventfd_write(event.get(), 1);
  EXPECT_TRUE(seen.get_future().get() & EPOLLIN);
  loop.Unwatch(event.get());
}

TEST(LoopWatchTest, ReportsWhyADescriptorCannotBeWatched) {
  EXPECT_EQ(Loop::Get().Watch(-1, EPOLLIN, [](uint32_t) {}), EBADF);
  EXPECT_EQ(Loop::Get().Rewatch(12345, EPOLLIN), ENOENT);
}

TEST(LoopUnwatchTest, WaitsForTheRunningCallbackAndDropsItsCaptures) {
  Loop& loop = Loop::Get();
  UniqueFd event(eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));
  std::promise<void> entered, go;
  std::shared_future<void> may_leave = go.get_future().share();
  std::atomic<bool> left{false};
  auto capture = std::make_shared<int>(0);
  std::weak_ptr<int> alive = capture;
  loop.Watch(event.get(), EPOLLIN, [&, capture = std::move(capture)](uint32_t) {
    eventfd_t value;
    eventfd_read(event.get(), &value);  // level-triggered: once is enough
    entered.set_value();
    may_leave.wait();
    left = true;
  });
  entered.get_future().wait();
  std::thread releaser([&] { go.set_value(); });
  loop.Unwatch(event.get());
  EXPECT_TRUE(left);
  releaser.join();
  loop.RunAndWait([] {});
  EXPECT_TRUE(alive.expired());
}

TEST(LoopUnwatchTest, FromInsideTheCallbackItself) {
  Loop& loop = Loop::Get();
  UniqueFd event(eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));  // stays readable
  std::atomic<int> calls{0};
  std::promise<void> called;
  loop.Watch(event.get(), EPOLLIN, [&](uint32_t) {
    ++calls;
    loop.Unwatch(event.get());
    called.set_value();
  });
  called.get_future().wait();
  loop.RunAndWait([] {});
  EXPECT_EQ(calls, 1);
}

TEST(LoopIdleTest, ASleepingLoopIsNotWokenByAnything) {
  Loop& loop = Loop::Get();
  loop.RunAndWait([] {});
  loop.RunAndWait([] {});  // whatever the first one left to do is done
  const uint64_t before = loop.wakeups();
  EXPECT_EQ(poll(nullptr, 0, 50), 0);  // nothing is waited for here: this is the stretch watched
  EXPECT_EQ(loop.wakeups(), before);
}

TEST(LoopForkTest, ChildGetsItsOwnLoopAndDropsTheParentsConnections) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer can't follow a thread started after fork";
#endif
  Loop& loop = Loop::Get();
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  UniqueFd watched(pair[0]), other(pair[1]);
  ASSERT_EQ(loop.Watch(watched.get(), EPOLLIN, [](uint32_t) {}), 0);

  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    close(hold[1]);
    bool ran = false;
    Loop::Get().RunAndWait([&] { ran = true; });
    char byte;
    const bool parent_done = read(hold[0], &byte, 1) == 0;  // lives until the parent has looked
    _exit(ran && parent_done ? 0 : 1);
  }
  loop.Unwatch(watched.get());
  watched.Reset();
  // The child still lives, and yet the other end sees the end of the connection.
  pollfd end{.fd = other.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&end, 1, 10'000), 1);
  char byte;
  EXPECT_EQ(recv(other.get(), &byte, 1, 0), 0);
  close(hold[0]);
  close(hold[1]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace loop_test
}  // namespace sluice::softdc
