// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/signal_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <vector>

namespace sluice {
namespace signal_watch_test {

int heard_before = 0;

TEST(SignalWatchTest, SignalsDoWhatTheyDidBeforeWhenItEnds) {
  heard_before = 0;
  struct sigaction mine = {};
  struct sigaction before;
  mine.sa_handler = [](int) { ++heard_before; };
  ASSERT_EQ(sigaction(SIGUSR1, &mine, &before), 0);
  {
    auto watch = SignalWatch::Create({SIGUSR1, SIGUSR2});
    ASSERT_TRUE(watch.ok()) << watch.status();
    raise(SIGUSR1);
    EXPECT_EQ((*watch)->Wait(), SIGUSR1);
    EXPECT_EQ(heard_before, 0);
  }
  raise(SIGUSR1);
  EXPECT_EQ(heard_before, 1);
  sigaction(SIGUSR1, &before, nullptr);
}

// As without the watch.
TEST(SignalWatchTest, EndsAForkedChild) {
  auto watch = SignalWatch::Create({SIGTERM, SIGUSR1});
  ASSERT_TRUE(watch.ok());
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    auto again = SignalWatch::Create({SIGUSR1});  // a watch of its own
    raise(SIGUSR1);
    if (!again.ok() || (*again)->Wait() != SIGUSR1) _exit(1);
    watch->reset();  // the parent's: no effect on the other
    raise(SIGUSR1);
    if ((*again)->Wait() != SIGUSR1) _exit(3);
    raise(SIGTERM);
    _exit(2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  raise(SIGTERM);
  EXPECT_EQ((*watch)->Wait(), SIGTERM) << "the parent's is as it was";
}

TEST(SignalWatchTest, HandlerThatWasSetMeanwhileStaysInAForkedChildAndAfterTheEnd) {
  heard_before = 0;
  struct sigaction before;
  auto watch = SignalWatch::Create({SIGUSR1});
  ASSERT_TRUE(watch.ok());
  struct sigaction mine = {};
  mine.sa_handler = [](int) { ++heard_before; };
  ASSERT_EQ(sigaction(SIGUSR1, &mine, &before), 0);
  const pid_t child = fork();
  if (child == 0) {
    raise(SIGUSR1);
    _exit(heard_before == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  watch->reset();
  raise(SIGUSR1);
  EXPECT_EQ(heard_before, 1);
  signal(SIGUSR1, SIG_DFL);
}

TEST(SignalWatchTest, EachHearsItAndTheLastOneRestores) {
  auto one = SignalWatch::Create({SIGUSR1});
  auto two = SignalWatch::Create({SIGUSR1, SIGUSR2});
  ASSERT_TRUE(one.ok() && two.ok());
  raise(SIGUSR1);
  EXPECT_EQ((*one)->Wait(), SIGUSR1);
  EXPECT_EQ((*two)->Wait(), SIGUSR1);
  two->reset();
  raise(SIGUSR1);
  EXPECT_EQ((*one)->Wait(), SIGUSR1) << "it still has it";
}

TEST(SignalWatchTest, WakeIsNoSignal) {
  auto watch = SignalWatch::Create({});
  ASSERT_TRUE(watch.ok());
  (*watch)->Wake();
  EXPECT_EQ((*watch)->Wait(), 0);
}

TEST(SignalWatchTest, SignalThatWasBlockedComesThrough) {
  sigset_t usr1, before;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, &before);
  raise(SIGUSR1);
  {
    auto watch = SignalWatch::Create({SIGUSR1});
    ASSERT_TRUE(watch.ok());
    EXPECT_EQ((*watch)->Wait(), SIGUSR1);
  }
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, &before, &after);
  EXPECT_TRUE(sigismember(&after, SIGUSR1)) << "it is blocked again";
}

TEST(SignalWatchTest, SixteenAtATime) {
  std::vector<std::unique_ptr<SignalWatch>> watches;
  for (int i = 0; i < 16; ++i) {
    auto watch = SignalWatch::Create({SIGUSR1});
    ASSERT_TRUE(watch.ok()) << watch.status();
    watches.push_back(*std::move(watch));
  }
  EXPECT_EQ(SignalWatch::Create({SIGUSR1}).status().code(), absl::StatusCode::kResourceExhausted);
  watches.pop_back();
  EXPECT_TRUE(SignalWatch::Create({SIGUSR1}).ok());
}

}  // namespace signal_watch_test
}  // namespace sluice
