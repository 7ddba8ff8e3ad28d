// SPDX-License-Identifier: Apache-2.0
#include "transport/poller/commands.h"

#include <poll.h>

#include <string>

#include "gtest/gtest.h"

namespace sluice::poller {
namespace {

template <typename T>
class CommandsTest : public testing::Test {};
using Kinds = testing::Types<ThreadCommands, InlineCommands>;
TYPED_TEST_SUITE(CommandsTest, Kinds);

void WaitReadable(int fd) {
  pollfd sleeper = {fd, POLLIN, 0};
  poll(&sleeper, 1, -1);
}

bool Readable(int fd) {
  pollfd sleeper = {fd, POLLIN, 0};
  return poll(&sleeper, 1, 0) == 1;
}

TYPED_TEST(CommandsTest, DoneRunsOnlyInDrainAndInOrder) {
  TypeParam commands;
  std::string work, done;  // work is read after its done has run: ordered by Drain()
  for (char c : {'a', 'b', 'c'}) {
    commands.Submit([&work, c] { work += c; }, [&done, c] { done += c; });
  }
  EXPECT_EQ(done, "");
  while (done.size() < 3) {
    WaitReadable(commands.fd());
    commands.Drain();
  }
  EXPECT_EQ(work, "abc");
  EXPECT_EQ(done, "abc");
  EXPECT_EQ(commands.Drain(), 0);
  EXPECT_FALSE(Readable(commands.fd()));
}

TYPED_TEST(CommandsTest, DoneMaySubmitMore) {
  TypeParam commands;
  int rounds = 0;
  std::function<void()> next = [&] {
    if (++rounds < 5) commands.Submit([] {}, next);
  };
  commands.Submit([] {}, next);
  while (rounds < 5) {
    WaitReadable(commands.fd());
    commands.Drain();
  }
}

TYPED_TEST(CommandsTest, FinishWaitsForWorkAndDropsItsDone) {
  TypeParam commands;
  int worked = 0;
  bool told = false;
  for (int i = 0; i < 100; ++i) commands.Submit([&worked] { ++worked; }, [&told] { told = true; });
  commands.Finish();
  EXPECT_EQ(worked, 100);
  EXPECT_EQ(commands.Drain(), 0);
  EXPECT_FALSE(told);
  EXPECT_FALSE(Readable(commands.fd()));
}

}  // namespace
}  // namespace sluice::poller
