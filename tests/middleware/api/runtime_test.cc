// SPDX-License-Identifier: Apache-2.0
//
// Channels that share a Runtime: their calls, their ends in any order, one loop for all of them.
#include "middleware/api/runtime.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "middleware/api/client_call.h"
#include "middleware/api/resolver.h"
#include "tests/middleware/api/runtime_world.h"

namespace sluice {
namespace runtime_test {

using testing_support::ChatClient;
using testing_support::FakeEndpoint;
using testing_support::FakeNetwork;
using testing_support::FakeStack;
using testing_support::Gate;
using testing_support::kHang;
using testing_support::kHangMs;
using testing_support::Lasting;
using testing_support::LastWord;
using testing_support::Line;
using testing_support::Text;

class RuntimeTest : public testing_support::RuntimeWorld {};

size_t Threads() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                                           std::filesystem::directory_iterator()));
}

// ---- Calls

TEST_F(RuntimeTest, EachChannelCallsItsServerOverTheSameEndpoint) {
  Make();
  FakeEndpoint* const endpoint = client_end_;
  const size_t threads = Threads();
  const auto a = Connect("a:1"), b = Connect("b:1"), again = Connect("a:1");
  EXPECT_EQ(Threads(), threads) << "a channel of a runtime starts no thread";
  EXPECT_EQ(client_end_, endpoint) << "nor makes an endpoint";
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(Say(a, "a").ok());
    EXPECT_TRUE(Say(b, "b").ok());
    EXPECT_TRUE(Say(again, "again").ok());
  }
  EXPECT_EQ(b->counters().calls_ok, 100u);
  // Those of the two to one server count together: they share its connection.
  EXPECT_EQ(a->counters().calls_ok, 200u);
  EXPECT_EQ(again->counters().calls_ok, 200u);
  EXPECT_EQ(endpoint->credits_out(), 0);
}

TEST_F(RuntimeTest, OneThreadDrivesTheCallsOfAll) {
  Make();
  const auto a = Connect("a:1"), b = Connect("b:1"), c = Connect("c:1");
  int ended = 0;
  Line replies[300];
  for (int i = 0; i < 300; ++i) {
    const auto& channel = i % 3 == 0 ? a : i % 3 == 1 ? b : c;
    CallContext context(kHang);
    const absl::Status started = ChatClient(channel).StartSay(
        context, Lasting(std::to_string(i)), &replies[i], [&ended](const absl::Status& status) {
          EXPECT_TRUE(status.ok()) << status;
          ++ended;
        });
    ASSERT_TRUE(started.ok()) << started;
    if (i % 30 == 29) {
      ASSERT_TRUE(runtime_->Drive([&] { return ended > i; }, kHang));
    }
  }
  EXPECT_EQ(ended, 300);
}

TEST_F(RuntimeTest, BackgroundThreadEndsCallsThatNobodyWaitsFor) {
  Make();
  const auto a = Connect("a:1"), b = Connect("b:1");
  for (int round = 0; round < 20; ++round) {
    for (const auto& channel : {a, b}) {
      Gate ended;
      Line reply;
      CallContext context(kHang);
      ASSERT_TRUE(ChatClient(channel)
                      .StartSay(context, Lasting("x"), &reply,
                                [&ended](const absl::Status&) { ended.Open(); })
                      .ok());
      EXPECT_TRUE(ended.WaitFor(kHang));
    }
  }
}

TEST_F(RuntimeTest, DeadlinesOfAllComeWhileTheThreadSleeps) {
  Make();
  const auto a = Connect("a:1"), b = Connect("b:1");
  std::atomic<int> ended{0};
  Gate all;
  Line replies[2];
  for (int i = 0; i < 2; ++i) {
    CallContext context(absl::Milliseconds(20 + 20 * i));
    ASSERT_TRUE(ChatClient(i == 0 ? a : b)
                    .StartSay(context, Lasting("wait"), &replies[i],
                              [&](const absl::Status& status) {
                                EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
                                if (++ended == 2) all.Open();
                              })
                    .ok());
  }
  EXPECT_TRUE(all.WaitFor(kHang));
}

TEST_F(RuntimeTest, ChannelReconnectsWhileOthersGoOn) {
  Make();
  ChannelOptions options;
  options.backoff_min = absl::Milliseconds(1);
  options.backoff_max = absl::Milliseconds(20);
  options.max_reconnect_attempts = 1'000'000;
  const auto a = Connect("a:1", options), c = Connect("c:1", options);
  EXPECT_TRUE(Say(c, "c").ok());
  servers_.pop_back();
  ASSERT_NE(c->WaitForStateChange(ConnectionState::kUp, kHang), ConnectionState::kUp);
  EXPECT_TRUE(Say(a, "a").ok());
  StartServer("c:1");
  EXPECT_TRUE(c->WaitUntilConnected(kHang).ok());
  EXPECT_TRUE(Say(c, "c").ok());
  EXPECT_EQ(a->counters().connections_lost, 0u);
}

// The peer that the callback connects may get the index of the one that went down.
TEST_F(RuntimeTest, ChannelThatACallbackOfALostConnectionCreatesConnects) {
  Make();
  const auto c = Connect("c:1");
  std::shared_ptr<Channel> b;
  Gate ended;
  Line reply;
  StartWaiting(c, &reply, [&](const absl::Status& status) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    ChannelOptions options;
    options.connect_in_background = true;
    b = Connect("b:1", options);
    ended.Open();
  });
  EXPECT_TRUE(Say(c, "c").ok()) << "the waiting call has arrived before";
  servers_.pop_back();
  ended.Wait();
  EXPECT_TRUE(b->WaitUntilConnected(kHang).ok());
  EXPECT_TRUE(Say(b, "b").ok());
}

TEST_F(RuntimeTest, FailedConnectLeavesTheRuntimeAsItWas) {
  Make();
  const auto a = Connect("a:1");
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(Channel::ConnectIn(runtime_, "nobody:1").ok());
  }
  EXPECT_TRUE(Say(a, "a").ok());
}

TEST_F(RuntimeTest, LargeMessagesGoBothWaysAndComeBackAtTheEnd) {
  Make();
  auto a = Connect("a:1"), b = Connect("b:1");
  const std::string large(300'000, 'x');
  EXPECT_TRUE(Say(a, large).ok());
  EXPECT_TRUE(Say(b, large).ok());
  Line reply;
  int ended = 0;
  client_end_->set_hold_fetches(true);
  ASSERT_TRUE(ChatClient(a)
                  .StartSay(forever_, Lasting(large), &reply,
                            [&](const absl::Status& status) {
                              EXPECT_TRUE(absl::IsCancelled(status)) << status;
                              ++ended;
                            })
                  .ok());
  a.reset();
  EXPECT_EQ(ended, 1);
  client_end_->set_hold_fetches(false);
  EXPECT_TRUE(Say(b, large).ok());
  b.reset();
  EXPECT_EQ(client_end_->large_out(), 0u);
  EXPECT_EQ(client_end_->slots_out(), 0u);
}

// ---- Callbacks

TEST_F(RuntimeTest, CallbackCannotWaitForAnotherChannelOfItsRuntime) {
  Make();
  const auto a = Connect("a:1"), b = Connect("b:1");
  Gate ended;
  Line reply, other;
  ASSERT_TRUE(ChatClient(a)
                  .StartSay(forever_, Lasting("x"), &reply,
                            [&](const absl::Status&) {
                              CallContext context(kHang);
                              const absl::Status call =
                                  b->Call(ChatClient::SayMethod(), context, Text("y"), &other);
                              EXPECT_TRUE(absl::IsFailedPrecondition(call)) << call;
                              const auto channel = Channel::ConnectIn(runtime_, "c:1");
                              EXPECT_TRUE(absl::IsFailedPrecondition(channel.status()));
                              EXPECT_FALSE(runtime_->Drive([] { return false; }, kHang));
                              ended.Open();
                            })
                  .ok());
  EXPECT_TRUE(ended.WaitFor(kHang));
}

TEST_F(RuntimeTest, CallbackStartsCallsAndChannels) {
  Make();
  const auto a = Connect("a:1"), b = Connect("b:1");
  std::shared_ptr<Channel> c;
  Gate ended;
  Line replies[3];
  CallContext patient(kHang);
  patient.set_wait_for_ready(true);
  ASSERT_TRUE(
      ChatClient(a)
          .StartSay(forever_, Lasting("x"), &replies[0],
                    [&](const absl::Status&) {
                      ChannelOptions options;
                      options.connect_in_background = true;
                      c = Connect("c:1", options);
                      const auto then = [&](const absl::Status& status) {
                        EXPECT_TRUE(status.ok()) << status;
                        const absl::Status started = ChatClient(c).StartSay(
                            patient, Lasting("z"), &replies[2], [&](const absl::Status& last) {
                              EXPECT_TRUE(last.ok()) << last;
                              ended.Open();
                            });
                        EXPECT_TRUE(started.ok()) << started;
                      };
                      EXPECT_TRUE(
                          ChatClient(b).StartSay(forever_, Lasting("y"), &replies[1], then).ok());
                    })
          .ok());
  EXPECT_TRUE(ended.WaitFor(kHang));
}

// ---- Ends

TEST_F(RuntimeTest, ChannelsEndWithCallsUnderWayInEachOrder) {
  const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto& order : orders) {
    for (int handle_after = 0; handle_after <= 3; ++handle_after) {
      Make();
      std::shared_ptr<Channel> channels[3] = {Connect("a:1"), Connect("b:1"), Connect("a:1")};
      int ended[3] = {0, 0, 0};
      Line replies[3];
      for (int i = 0; i < 3; ++i) {
        StartWaiting(channels[i], &replies[i], [&ended, i](const absl::Status& status) {
          EXPECT_TRUE(absl::IsCancelled(status)) << status;
          ++ended[i];
        });
      }
      for (int step = 0; step <= 3; ++step) {
        if (step == handle_after) runtime_.reset();
        if (step == 3) break;
        channels[order[step]].reset();
        EXPECT_EQ(ended[order[step]], 1);
        for (int later = step + 1; later < 3; ++later) {
          EXPECT_EQ(ended[order[later]], 0) << "the others go on";
          EXPECT_TRUE(Say(channels[order[later]], "still there").ok());
        }
      }
      EXPECT_TRUE(gone_->open());
    }
  }
}

// The background thread ends both channels, and the runtime with itself.
TEST_F(RuntimeTest, LastReferencesGoInsideCallbacks) {
  for (int round = 0; round < 20; ++round) {
    const auto gone = std::make_shared<Gate>();
    RuntimeOptions options;
    options.log = std::make_shared<LastWord>(gone);
    auto made =
        Runtime::CreateOn(std::make_unique<FakeStack>(&network_, FakeNetwork::Options()), options);
    ASSERT_TRUE(made.ok());
    runtime_ = *std::move(made);
    auto a = Connect("a:1"), b = Connect("b:1");
    runtime_.reset();
    std::atomic<int> ended{0};
    Line replies[2];
    StartWaiting(b, &replies[1], [&](const absl::Status& status) {
      EXPECT_TRUE(absl::IsCancelled(status)) << status;
      ++ended;
    });
    Line reply;
    ASSERT_TRUE(ChatClient(a)
                    .StartSay(forever_, Lasting("x"), &reply,
                              [&](const absl::Status&) {
                                if (round % 2 == 0) a.reset();
                                b.reset();
                                a.reset();
                                ++ended;
                              })
                    .ok());
    options = {};
    EXPECT_TRUE(gone->WaitFor(kHang));
    EXPECT_EQ(ended, 2);
  }
}

TEST_F(RuntimeTest, ChannelThatAThreadVisitsEndsBeforeItsCallReturns) {
  Make();
  auto a = Connect("a:1");
  const auto b = Connect("b:1");
  Channel* const raw = a.get();
  Line replies[2];
  bool cancelled = false;
  StartWaiting(a, &replies[0],
               [&](const absl::Status& status) { cancelled = absl::IsCancelled(status); });
  bool started = false;
  // The call starts with the lease, so that its callback runs on this thread, while it visits `a`.
  const auto step = [&] {
    if (!std::exchange(started, true)) {
      const absl::Status status = ChatClient(b).StartSay(forever_, Lasting("x"), &replies[1],
                                                         [&](const absl::Status&) { a.reset(); });
      EXPECT_TRUE(status.ok()) << status;
    }
    return a == nullptr;
  };
  EXPECT_TRUE(raw->Drive(step, kHang));
  EXPECT_TRUE(runtime_->Drive([&] { return cancelled; }, kHang));
}

TEST_F(RuntimeTest, StreamsOutliveTheirChannelAndItsRuntime) {
  Make();
  auto a = Connect("a:1");
  const auto b = Connect("b:1");
  auto talk = std::make_optional(ChatClient(a).Talk(forever_));
  Line line = Text("hello");
  ASSERT_TRUE(talk->Write(line));
  ASSERT_TRUE(talk->Read(&line));
  std::stop_source stop;
  CallContext stoppable = CallContext::NoDeadline();
  stoppable.set_stop_token(stop.get_token());
  auto other = std::make_optional(ChatClient(a).Talk(stoppable));
  a.reset();
  EXPECT_FALSE(talk->Read(&line));
  EXPECT_TRUE(Say(b, "b").ok());
  stop.request_stop();
  EXPECT_TRUE(absl::IsCancelled(other->Finish()));
  other.reset();
  runtime_.reset();
  EXPECT_TRUE(Say(b, "b").ok());
  talk.reset();
  EXPECT_FALSE(gone_->open());
}

// A race on purpose: callers, cancellations, stops, ends and new channels on all threads.
TEST_F(RuntimeTest, EverythingAtOnce) {
  Make();
  std::vector<std::thread> threads;
  auto steady = Connect("a:1");
  std::atomic<int> ended{0}, started{0};
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      const char* const addresses[] = {"a:1", "b:1", "c:1"};
      for (int round = 0; round < 15; ++round) {
        auto channel = Connect(addresses[random() % 3]);
        ASSERT_NE(channel, nullptr);
        std::stop_source stop;
        CallContext stoppable = CallContext::NoDeadline();
        stoppable.set_stop_token(stop.get_token());
        Line replies[4];
        std::atomic<int> mine{0};
        for (Line& reply : replies) {
          const absl::Status status = ChatClient(channel).StartSay(
              stoppable, Lasting("wait"), &reply, [&](const absl::Status&) { ++ended, ++mine; });
          ASSERT_TRUE(status.ok()) << status;
          ++started;
        }
        for (int i = 0; i < 5; ++i) {
          EXPECT_TRUE(Say(channel, "x").ok());
          EXPECT_TRUE(Say(steady, "y").ok());
        }
        std::optional<std::thread> stopper;
        if (random() % 2 == 0) stopper.emplace([&stop] { stop.request_stop(); });
        channel.reset();
        EXPECT_EQ(mine, 4);
        if (stopper.has_value()) stopper->join();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ended, started);
  EXPECT_TRUE(Say(steady, "z").ok());
  steady.reset();
  EXPECT_EQ(client_end_->slots_out(), 0u);
}

// ---- A loop of the user's own

TEST_F(RuntimeTest, OneLoopServesAllChannels) {
  MakeLoop();
  const auto a = Connect("a:1"), b = Connect("b:1");
  ASSERT_GE(runtime_->fd(), 0);
  EXPECT_EQ(a->fd(), runtime_->fd());
  int ended = 0;
  Line replies[2];
  CallContext context(kHang), brief(absl::Milliseconds(30));
  const auto done = [&ended](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    ++ended;
  };
  ASSERT_TRUE(ChatClient(a).StartSay(context, Lasting("x"), &replies[0], done).ok());
  ASSERT_TRUE(ChatClient(b).StartSay(context, Lasting("y"), &replies[1], done).ok());
  EXPECT_TRUE(RunLoop([&] { return ended == 2; }));
  // A timer of one of them, and a call of another thread.
  ASSERT_TRUE(ChatClient(b)
                  .StartSay(brief, Lasting("wait"), &replies[1],
                            [&](const absl::Status& status) {
                              EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
                              ++ended;
                            })
                  .ok());
  EXPECT_TRUE(RunLoop([&] { return ended == 3; }));
  std::atomic<bool> over{false};
  std::thread caller([&] {
    EXPECT_TRUE(Say(a, "from outside").ok());
    over.store(true);
    runtime_->Wake();
  });
  EXPECT_TRUE(RunLoop([&] { return over.load(); }));
  caller.join();
}

TEST_F(RuntimeTest, ChannelThatIsDroppedInThePollEndsBeforeItReturns) {
  MakeLoop();
  auto a = Connect("a:1"), b = Connect("b:1");
  int ended = 0;
  Line replies[2];
  StartWaiting(b, &replies[1], [&](const absl::Status& status) {
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
    ++ended;
  });
  ASSERT_TRUE(ChatClient(a)
                  .StartSay(forever_, Lasting("x"), &replies[0],
                            [&](const absl::Status&) {
                              b.reset();
                              a.reset();
                              EXPECT_EQ(ended, 0) << "not inside the callback";
                            })
                  .ok());
  EXPECT_TRUE(RunLoop([&] { return a == nullptr; }));
  EXPECT_EQ(ended, 1);
  runtime_.reset();
  EXPECT_TRUE(gone_->open());
}

// Says the servers again and again, on a thread of its own.
class Insistent final : public Resolver {
 public:
  absl::Status Start(Listener listener) override {
    thread_ = std::thread([this, listener = std::move(listener)]() mutable {
      while (!stopping_.load()) {
        EXPECT_TRUE(listener({"a:1"}).ok());
        said.Open();
      }
    });
    return absl::OkStatus();
  }
  void Stop() override {
    stopping_.store(true);
    thread_.join();
  }
  Gate said;

 private:
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

TEST_F(RuntimeTest, LoopEndsAChannelWhoseResolverWaitsForTheLoop) {
  MakeLoop();
  ChannelOptions options;
  const auto resolver = std::make_shared<Insistent>();
  options.resolver = resolver;
  options.connect_in_background = true;
  auto a = Connect("", options);
  const auto b = Connect("b:1");
  EXPECT_TRUE(RunLoop([&] { return resolver->said.open(); }));
  a.reset();
  EXPECT_TRUE(Say(b, "b").ok());
}

// ---- Processes

TEST_F(RuntimeTest, ForkedChildIsToldThatTheRuntimeIsItsParents) {
  Make();
  auto a = Connect("a:1");
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = absl::IsFailedPrecondition(Channel::ConnectIn(runtime_, "b:1").status()) &&
                         absl::IsFailedPrecondition(Say(a, "of the child"));
    a.reset();  // neither waits for the threads of the parent
    runtime_.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(Say(a, "the parent goes on").ok());
}

}  // namespace runtime_test
}  // namespace sluice
