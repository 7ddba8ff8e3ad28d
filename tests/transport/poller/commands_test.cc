// SPDX-License-Identifier: Apache-2.0
#include "transport/poller/commands.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "gtest/gtest.h"

namespace sluice::poller {
namespace {

template <typename T>
class CommandsTest : public testing::Test {};
// ThreadCommands whose Drain() runs the work.
class DrainingCommands {
 public:
  DrainingCommands() { commands_.RunInDrain(true); }
  void Submit(Commands::Work work, Commands::Work done) {
    commands_.Submit(std::move(work), std::move(done));
  }
  int Drain() { return commands_.Drain(); }
  void Finish() { commands_.Finish(); }
  int fd() const { return commands_.fd(); }

 private:
  ThreadCommands commands_;
};
using Kinds = testing::Types<ThreadCommands, InlineCommands, DrainingCommands>;
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

// Work that waits until it is told to go on, and tells when it has.
struct Gate {
  std::atomic<bool> begun{false};
  std::atomic<bool> open{false};
  std::atomic<bool> passed{false};
  void Pass() {
    begun = true;
    begun.notify_all();
    open.wait(false);
    passed = true;
    passed.notify_all();
  }
  void Open() {
    open = true;
    open.notify_all();
  }
};

// Drains until `done`, asleep meanwhile.
void DrainUntil(ThreadCommands& commands, const std::function<bool()>& done) {
  while (!done()) {
    WaitReadable(commands.fd());
    commands.Drain();
  }
}

TEST(ThreadCommandsInDrain, WorkRunsOnTheThreadThatDrains) {
  ThreadCommands commands;
  commands.RunInDrain(true);
  std::thread::id at;
  bool done = false;
  commands.Submit([&] { at = std::this_thread::get_id(); }, [&] { done = true; });
  EXPECT_EQ(at, std::thread::id());
  DrainUntil(commands, [&] { return done; });
  EXPECT_EQ(at, std::this_thread::get_id());
}

TEST(ThreadCommandsInDrain, WorkThatIsUnderWayEndsOnTheHelperAndTheRestComesAfterIt) {
  ThreadCommands commands;
  Gate gate;
  std::string order;
  std::thread::id at;
  bool done = false;
  commands.Submit([&] { gate.Pass(), order += 'a'; }, [] {});
  gate.begun.wait(false);
  commands.Submit([&] { order += 'b', at = std::this_thread::get_id(); }, [&] { done = true; });
  commands.RunInDrain(true);
  EXPECT_EQ(commands.Drain(), 0);
  gate.Open();
  DrainUntil(commands, [&] { return done; });
  EXPECT_EQ(order, "ab");
  EXPECT_EQ(at, std::this_thread::get_id());
}

TEST(ThreadCommandsInDrain, TheHelperTakesWhatNoDrainHasRun) {
  ThreadCommands commands;
  commands.RunInDrain(true);
  std::string order;
  std::thread::id at;
  int done = 0;
  commands.Submit([&] { order += 'a'; }, [&] { ++done; });
  commands.RunInDrain(false);
  commands.Submit([&] { order += 'b', at = std::this_thread::get_id(); }, [&] { ++done; });
  DrainUntil(commands, [&] { return done == 2; });
  EXPECT_EQ(order, "ab");
  EXPECT_NE(at, std::this_thread::get_id());
}

// Whatever changes between the helper and Drain(), nothing is lost and nothing overtakes.
TEST(ThreadCommandsInDrain, ManyChangesOfPlaceKeepTheOrder) {
  ThreadCommands commands;
  constexpr int kRounds = 2000;
  int worked = 0, done = 0, disorder = 0;
  for (int i = 0; i < kRounds; ++i) {
    commands.RunInDrain(i % 3 == 0);
    commands.Submit([&, i] { disorder += worked++ != i; }, [&, i] { disorder += done++ != i; });
    if (i % 5 == 0) commands.Drain();
  }
  DrainUntil(commands, [&] { return done == kRounds; });
  EXPECT_EQ(worked, kRounds);
  EXPECT_EQ(disorder, 0);
}

// So that a poller looks at its calls and deadlines between two pieces.
TEST(ThreadCommandsInDrain, OneDrainRunsOnePiece) {
  ThreadCommands commands;
  commands.RunInDrain(true);
  int worked = 0;
  for (int i = 0; i < 3; ++i) commands.Submit([&] { ++worked; }, [] {});
  for (int i = 1; i <= 3; ++i) {
    EXPECT_TRUE(Readable(commands.fd()));
    EXPECT_EQ(commands.Drain(), 1);
    EXPECT_EQ(worked, i);
  }
  EXPECT_EQ(commands.Drain(), 0);
  EXPECT_FALSE(Readable(commands.fd()));
}

TEST(ThreadCommandsInDrain, ADoneMayDrain) {
  ThreadCommands commands;
  std::string order;
  commands.Submit([] {},
                  [&] {
                    order += 'a';
                    commands.RunInDrain(true);
                    commands.Submit([] {}, [&] { order += 'c'; });
                    commands.Drain();
                    order += 'd';
                  });
  commands.Submit([] {}, [&] { order += 'b'; });
  DrainUntil(commands, [&] { return order.size() == 4; });
  EXPECT_NE(order.find("c"), std::string::npos);
}

// Does work as a user without processes to spare, for whom no thread can be made.
[[noreturn]] void WorkWithoutThreads() {
  const rlimit none = {1, 1};
  setrlimit(RLIMIT_NPROC, &none);
  if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
  {
    ThreadCommands commands;
    int done = 0;
    for (int i = 0; i < 3; ++i) commands.Submit([] {}, [&] { ++done; });
    DrainUntil(commands, [&] { return done == 3; });
  }
  try {
    std::thread([] {}).join();
  } catch (const std::system_error&) {
    _exit(0);
  }
  _exit(3);  // there was a thread: nothing is shown
}

TEST(ThreadCommandsInDrain, WithoutAThreadDrainRunsTheWork) {
  EXPECT_EXIT(WorkWithoutThreads(), testing::ExitedWithCode(0), "");
}

TEST(ThreadCommandsInDrain, WorkOfADestroyedOneHasRun) {
  int worked = 0;
  for (const bool in_drain : {true, false}) {
    ThreadCommands commands;
    commands.RunInDrain(in_drain);
    for (int i = 0; i < 10; ++i) commands.Submit([&] { ++worked; }, [] {});
  }
  EXPECT_EQ(worked, 20);
}

TEST(ThreadCommandsSlow, OtherWorkDoesNotWaitBehindIt) {
  const auto gate = std::make_shared<Gate>();
  ThreadCommands commands;
  std::string done;
  commands.SubmitSlow([gate] { gate->Pass(); }, [&done] { done += 's'; });
  gate->begun.wait(false);
  commands.Submit([] {}, [&done] { done += 'f'; });
  while (done != "f") {
    WaitReadable(commands.fd());
    commands.Drain();
  }
  gate->Open();
  while (done != "fs") {
    WaitReadable(commands.fd());
    commands.Drain();
  }
}

TEST(ThreadCommandsSlow, OneKindDoesNotWaitBehindAnother) {
  const auto gate = std::make_shared<Gate>();
  ThreadCommands commands;
  bool told = false;
  commands.SubmitSlow([gate] { gate->Pass(); }, [] {}, Slow::kNames);
  gate->begun.wait(false);
  commands.SubmitSlow([] {}, [&told] { told = true; }, Slow::kSecrets);
  while (!told) {
    WaitReadable(commands.fd());
    commands.Drain();
  }
  gate->Open();
}

TEST(ThreadCommandsSlow, NobodyWaitsForItsEndNorHearsOfIt) {
  const auto begun = std::make_shared<Gate>();
  const auto queued = std::make_shared<Gate>();
  queued->Open();
  bool told = false;
  {
    ThreadCommands commands;
    commands.SubmitSlow([begun] { begun->Pass(); }, [&told] { told = true; });
    begun->begun.wait(false);
    commands.SubmitSlow([queued] { queued->Pass(); }, [&told] { told = true; });
    commands.Finish();
    // Of use again afterwards: the next one has its turn when the first has ended.
    begun->Open();
    bool next = false;
    commands.SubmitSlow([] {}, [&next] { next = true; });
    while (!next) {
      WaitReadable(commands.fd());
      commands.Drain();
    }
  }
  EXPECT_FALSE(told);
  EXPECT_FALSE(queued->passed.load());
}

TEST(ThreadCommandsSlow, OneAtWorkOutlivesItsCommands) {
  const auto gate = std::make_shared<Gate>();
  bool told = false;
  {
    ThreadCommands commands;
    commands.SubmitSlow([gate] { gate->Pass(); }, [&told] { told = true; });
    gate->begun.wait(false);
  }
  gate->Open();
  gate->passed.wait(false);
  EXPECT_FALSE(told);
}

}  // namespace
}  // namespace sluice::poller
