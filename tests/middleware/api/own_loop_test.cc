// SPDX-License-Identifier: Apache-2.0
//
// Channels and servers in a loop of the user's own: one epoll set, one thread, no thread of Sluice's. What is waited for
// is waited for asleep: a wake-up that is lost is a loop that does not end, and a test that fails after kHang.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "examples/echo/echo.sluice.h"
#include "middleware/api/resolver.h"
#include "middleware/api/server.h"
#include "tests/support/executors.h"
#include "tests/support/fake_stack.h"

namespace sluice {
namespace own_loop_test {

using examples::echo::EchoClient;
using examples::echo::EchoServiceBase;
using examples::echo::SayReply;
using examples::echo::SayRequest;
using testing_support::FakeNetwork;
using testing_support::FakeStack;
using testing_support::ManualExecutor;
using testing_support::ThreadExecutor;

constexpr int kHangMs = 30'000;

// What a user's loop does with each of its descriptors that are Sluice's.
class Loop {
 public:
  Loop() : epoll_fd_(epoll_create1(EPOLL_CLOEXEC)) {}
  ~Loop() { close(epoll_fd_); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  template <typename Polled>
  void Add(Polled* polled) {
    epoll_event event = {};
    event.events = EPOLLIN;
    ASSERT_EQ(epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, polled->fd(), &event), 0);
    passes_.push_back([polled] { return polled->Poll() == 0 && polled->PrepareToSleep(); });
  }

  // True: all of them may sleep.
  bool Pass() {
    bool all = true;
    for (const auto& pass : passes_) all = pass() && all;
    return all;
  }
  // False: it slept for ever.
  bool RunUntil(absl::FunctionRef<bool()> done) {
    while (!done()) {
      if (!Pass() || done()) continue;
      ++sleeps_;
      epoll_event event;
      if (epoll_wait(epoll_fd_, &event, 1, kHangMs) == 0) return false;
    }
    return true;
  }
  // Until there is nothing to do, nor will be for a moment.
  void Settle() {
    while (!Pass()) {
    }
  }
  bool Readable() const {
    pollfd fd{epoll_fd_, POLLIN, 0};
    return poll(&fd, 1, 0) == 1;
  }
  int sleeps() const { return sleeps_; }

 private:
  const int epoll_fd_;
  std::vector<std::function<bool()>> passes_;
  int sleeps_ = 0;
};

class Echo final : public EchoServiceBase {
 public:
  absl::Status Say(ServerContext& context, const SayRequest& request, SayReply* reply) override {
    ran_on_ = std::this_thread::get_id();
    if (inside) inside();
    if (with) with(context);
    reply->set_payload(request.payload());
    return absl::OkStatus();
  }
  std::thread::id ran_on() const { return ran_on_; }
  std::function<void()> inside;
  std::function<void(ServerContext&)> with;

 private:
  std::thread::id ran_on_;
};

// Says what servers there are when the test knows them: then Connect() has nothing to wait for.
class Later final : public Resolver {
 public:
  absl::Status Start(Listener listener) override {
    listener_ = std::move(listener);
    return listener_({});
  }
  void Stop() override {}

 private:
  Listener listener_;
};

// A thread that never tires of saying the same.
class Insistent final : public Resolver {
 public:
  absl::Status Start(Listener listener) override {
    thread_ = std::thread([this, listener = std::move(listener)] {
      do EXPECT_TRUE(listener({"h:1"}).ok());
      while (!stopping_.load());
    });
    return absl::OkStatus();
  }
  void Stop() override {
    stopping_.store(true);
    thread_.join();
  }

 private:
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

struct Call {
  SayRequest request;
  SayReply reply;
  std::optional<absl::Status> status;
  std::thread::id ended_on;
  std::function<void()> then;

  absl::Status StartOn(Channel& channel, absl::Duration timeout = absl::Seconds(25)) {
    request.set_payload("ping");
    CallContext context(timeout);
    context.set_wait_for_ready(true);
    return channel.StartCall(EchoClient::SayMethod(), context, request, &reply, &Call::Done, this);
  }
  bool ended() const { return status.has_value(); }

 private:
  static void Done(void* argument, const absl::Status& status) {
    auto* self = static_cast<Call*>(argument);
    self->status = status;
    self->ended_on = std::this_thread::get_id();
    if (self->then) self->then();
  }
};

class OwnLoopTest : public ::testing::Test {
 protected:
  void StartServer(Driving driving, Executor* executor = nullptr) {
    ServerOptions options;
    options.driving = driving;
    auto server = Server::CreateOn(std::make_unique<FakeStack>(&network_, fake_), options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    RegisterOptions registering;
    registering.executor = executor;
    ASSERT_TRUE(server_->Register(&echo_, registering).ok());
    ASSERT_TRUE(server_->Listen("h:1").ok());
  }
  // Knows no servers so far.
  std::shared_ptr<Channel> NewChannel(std::shared_ptr<Resolver> resolver = nullptr) {
    ChannelOptions options;
    options.driving = Driving::kCaller;
    options.backoff_min = absl::Milliseconds(1);
    options.backoff_max = absl::Milliseconds(2);
    options.resolver = resolver != nullptr ? resolver : std::make_shared<Later>();
    auto channel = Channel::ConnectOn(std::make_unique<FakeStack>(&network_, fake_), "", options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *channel;
  }
  // The server has a thread, the channel a loop, and they know each other.
  void ConnectLoopToThread() {
    StartServer(Driving::kThreads);
    channel_ = NewChannel();
    loop_.Add(channel_.get());
    ASSERT_TRUE(channel_->SetServers({"h:1"}).ok());
    Call first;
    ASSERT_TRUE(first.StartOn(*channel_).ok());
    ASSERT_TRUE(loop_.RunUntil([&] { return first.ended(); }));
    ASSERT_TRUE(first.status->ok()) << *first.status;
    loop_.Settle();
  }

  // `work` on a thread of its own; the loop runs until it is done.
  template <typename Polled>
  void RunBeside(Polled* polled, const std::function<void()>& work) {
    std::atomic<bool> over{false};
    std::thread beside([&] {
      work();
      over = true;
      polled->Wake();
    });
    EXPECT_TRUE(loop_.RunUntil([&] { return over.load(); }));
    beside.join();
  }

  FakeNetwork network_;
  FakeNetwork::Options fake_;
  Echo echo_;
  Loop loop_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<Channel> channel_;
};

TEST_F(OwnLoopTest, ServerAndChannelShareOneThreadAndOneEpollSet) {
  StartServer(Driving::kCaller);
  channel_ = NewChannel();
  loop_.Add(server_.get());
  loop_.Add(channel_.get());
  ASSERT_TRUE(channel_->SetServers({"h:1"}).ok());
  for (int i = 0; i < 20; ++i) {
    Call call;
    ASSERT_TRUE(call.StartOn(*channel_).ok());
    ASSERT_TRUE(loop_.RunUntil([&] { return call.ended(); })) << "call " << i;
    ASSERT_TRUE(call.status->ok()) << *call.status;
    EXPECT_EQ(call.reply.payload(), "ping");
    EXPECT_EQ(call.ended_on, std::this_thread::get_id());
    EXPECT_EQ(echo_.ran_on(), std::this_thread::get_id());
    loop_.Settle();
  }
}

TEST_F(OwnLoopTest, CallsOfOtherThreadsWakeTheLoopAndCallbacksRunOnItsThread) {
  ConnectLoopToThread();
  Call started;
  RunBeside(channel_.get(), [&] {
    std::vector<std::thread> callers;
    for (int t = 0; t < 2; ++t) {
      callers.emplace_back([this] {
        const EchoClient client(channel_);
        SayRequest request;
        SayReply reply;
        for (int i = 0; i < 50; ++i) {
          CallContext context(absl::Seconds(25));
          request.set_payload(std::to_string(i));
          const absl::Status status = client.Say(context, request, &reply);
          EXPECT_TRUE(status.ok()) << status;
          EXPECT_EQ(reply.payload(), request.payload());
          EXPECT_GE(channel_->counters().calls_ok, 1u);
        }
      });
    }
    EXPECT_TRUE(started.StartOn(*channel_).ok());
    for (std::thread& caller : callers) caller.join();
  });
  EXPECT_TRUE(loop_.RunUntil([&] { return started.ended(); }));
  EXPECT_TRUE(started.status->ok()) << *started.status;
  EXPECT_EQ(started.ended_on, std::this_thread::get_id());
}

TEST_F(OwnLoopTest, ADeadlinePassesThoughNothingArrivesAndNothingElseWakesTheLoop) {
  channel_ = NewChannel();
  loop_.Add(channel_.get());
  Call call;
  ASSERT_TRUE(call.StartOn(*channel_, absl::Milliseconds(30)).ok());
  ASSERT_TRUE(loop_.RunUntil([&] { return call.ended(); }));
  EXPECT_EQ(call.status->code(), absl::StatusCode::kDeadlineExceeded) << *call.status;
  EXPECT_GT(loop_.sleeps(), 0);
  EXPECT_LE(loop_.sleeps(), 4) << "woken, and did not see what time it is";
}

TEST_F(OwnLoopTest, ACallThatIsStartedBesideAnArmedLoopWakesIt) {
  ConnectLoopToThread();
  ASSERT_TRUE(channel_->PrepareToSleep());
  ASSERT_FALSE(loop_.Readable());
  Call call;
  ASSERT_TRUE(call.StartOn(*channel_).ok());
  EXPECT_TRUE(loop_.Readable());
  EXPECT_FALSE(channel_->PrepareToSleep()) << "without a Poll() in between";
  EXPECT_TRUE(loop_.RunUntil([&] { return call.ended(); }));
}

TEST_F(OwnLoopTest, SynchronousCallsOfTheLoopsThreadPollByThemselves) {
  ConnectLoopToThread();
  ASSERT_TRUE(channel_->PrepareToSleep());
  SayRequest request;
  SayReply reply;
  request.set_payload("now");
  CallContext context(absl::Seconds(25));
  ASSERT_TRUE(EchoClient(channel_).Say(context, request, &reply).ok());
  EXPECT_EQ(reply.payload(), "now");
  EXPECT_TRUE(loop_.Readable()) << "what was armed is not right any more";
  Call call;
  ASSERT_TRUE(call.StartOn(*channel_).ok());
  EXPECT_TRUE(channel_->Drive([&] { return call.ended(); }, absl::Seconds(25)));
  loop_.Settle();
  EXPECT_FALSE(loop_.Readable());
}

TEST_F(OwnLoopTest, SynchronousCallsInACallbackAreRefused) {
  ConnectLoopToThread();
  Call call;
  absl::Status inner;
  int polled = 0;
  call.then = [&] {
    SayReply reply;
    CallContext context(absl::Seconds(25));
    inner = EchoClient(channel_).Say(context, SayRequest(), &reply);
    polled = channel_->Poll();
  };
  ASSERT_TRUE(call.StartOn(*channel_).ok());
  ASSERT_TRUE(loop_.RunUntil([&] { return call.ended(); }));
  EXPECT_EQ(inner.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(polled, 0);
}

TEST_F(OwnLoopTest, ACancelFromAnotherThreadWakesTheLoop) {
  channel_ = NewChannel();
  loop_.Add(channel_.get());
  CallContext context(absl::Minutes(5));
  context.set_wait_for_ready(true);
  std::stop_source stop;
  context.set_stop_token(stop.get_token());
  // A synchronous call that nobody answers, and another thread that ends it.
  absl::Status status;
  RunBeside(channel_.get(), [&] {
    std::thread caller([&] {
      SayReply reply;
      status = EchoClient(channel_).Say(context, SayRequest(), &reply);
    });
    while (channel_->counters().calls_started == 0) std::this_thread::yield();
    stop.request_stop();
    caller.join();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
}

TEST_F(OwnLoopTest, TheLastReferenceGoesWhileAResolversThreadWaitsForTheLoop) {
  StartServer(Driving::kThreads);
  for (int i = 0; i < 20; ++i) NewChannel(std::make_shared<Insistent>()).reset();
}

TEST_F(OwnLoopTest, CallsUnderWayEndWithTheirChannel) {
  Call call;
  {
    auto channel = NewChannel();
    ASSERT_TRUE(call.StartOn(*channel).ok());
  }
  ASSERT_TRUE(call.ended());
  EXPECT_EQ(call.status->code(), absl::StatusCode::kCancelled);
}

TEST_F(OwnLoopTest, WithoutALoopThereIsNothingToPoll) {
  StartServer(Driving::kThreads);
  EXPECT_EQ(server_->fd(), -1);
  EXPECT_EQ(server_->Poll(), 0);
  auto channel = Channel::ConnectOn(std::make_unique<FakeStack>(&network_, fake_), "h:1");
  ASSERT_TRUE(channel.ok());
  EXPECT_EQ((*channel)->fd(), -1);
  EXPECT_EQ((*channel)->Poll(), 0);
  EXPECT_FALSE((*channel)->PrepareToSleep());
}

// A server in a loop, a client with a thread.

class OwnServerLoopTest : public OwnLoopTest {
 protected:
  void Start(Executor* executor = nullptr) {
    StartServer(Driving::kCaller, executor);
    loop_.Add(server_.get());
  }
  void CallOnce() {
    auto channel = Channel::ConnectOn(std::make_unique<FakeStack>(&network_, fake_), "h:1");
    ASSERT_TRUE(channel.ok()) << channel.status();
    SayRequest request;
    SayReply reply;
    request.set_payload("ping");
    CallContext context(absl::Seconds(25));
    const absl::Status status = EchoClient(*channel).Say(context, request, &reply);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(reply.payload(), "ping");
  }
};

TEST_F(OwnServerLoopTest, HandlersRunInPollAndTheLoopIsAskedForCounts) {
  Start();
  RunBeside(server_.get(), [&] {
    CallOnce();
    const ServerSnapshot snapshot = server_->Snapshot(8, absl::Milliseconds(kHangMs));
    EXPECT_TRUE(snapshot.fresh);
    EXPECT_EQ(snapshot.calls.requests, 1u);
    ASSERT_EQ(snapshot.methods.size(), 1u);
    EXPECT_EQ(snapshot.methods[0].ended[0], 1u);
  });
  EXPECT_EQ(echo_.ran_on(), std::this_thread::get_id());
  EXPECT_EQ(server_->Snapshot().calls.requests, 1u);  // of the loop itself
  EXPECT_EQ(server_->counters().requests, 1u);
}

TEST_F(OwnServerLoopTest, AnswersOfAnExecutorWakeTheLoop) {
  ThreadExecutor threads;
  Start(&threads);
  RunBeside(server_.get(), [&] {
    for (int i = 0; i < 5; ++i) CallOnce();
  });
  EXPECT_NE(echo_.ran_on(), std::this_thread::get_id());
  server_.reset();
}

TEST_F(OwnServerLoopTest, DrainPollsToTheEnd) {
  Start();
  RunBeside(server_.get(), [&] { CallOnce(); });
  EXPECT_TRUE(server_->Drain(absl::Seconds(25)).ok());
  EXPECT_EQ(server_->drain_phase(), call::DrainPhase::kDrained);
  EXPECT_EQ(server_->Poll(), 0);
  EXPECT_TRUE(server_->PrepareToSleep());
  EXPECT_TRUE(server_->Shutdown(absl::Seconds(1)).ok());
}

TEST_F(OwnServerLoopTest, ADrainThatHasBegunGoesOnInPoll) {
  Start();
  RunBeside(server_.get(), [&] { CallOnce(); });
  server_->BeginDrain(absl::Seconds(25));
  EXPECT_TRUE(loop_.RunUntil([&] { return server_->drain_phase() >= call::DrainPhase::kDrained; }));
  EXPECT_EQ(server_->drain_phase(), call::DrainPhase::kDrained);
  EXPECT_TRUE(server_->Shutdown(absl::Seconds(1)).ok());
}

TEST_F(OwnServerLoopTest, AnEndThatWaitsForAHandlerGivesUpAndCanBeAskedForAgain) {
  ManualExecutor hoarder;
  Start(&hoarder);
  channel_ = NewChannel();
  loop_.Add(channel_.get());
  ASSERT_TRUE(channel_->SetServers({"h:1"}).ok());
  Call call;
  ASSERT_TRUE(call.StartOn(*channel_).ok());
  ASSERT_TRUE(loop_.RunUntil([&] { return hoarder.waiting() == 1; }));
  EXPECT_EQ(server_->Shutdown(absl::ZeroDuration()).code(), absl::StatusCode::kDeadlineExceeded);
  hoarder.RunAll();
  EXPECT_TRUE(server_->Shutdown(absl::ZeroDuration()).ok());
  ASSERT_TRUE(loop_.RunUntil([&] { return call.ended(); }));
  EXPECT_EQ(call.status->code(), absl::StatusCode::kUnavailable) << *call.status;
}

// A loop may move to another thread, and the one that polled before may be the executor's.
TEST_F(OwnServerLoopTest, MakeBufferAsksWhoPollsNow) {
  ManualExecutor hoarder;
  Start(&hoarder);
  channel_ = NewChannel();
  loop_.Add(channel_.get());
  ASSERT_TRUE(channel_->SetServers({"h:1"}).ok());
  std::atomic<bool> moved{false};
  std::atomic<bool> polls_again{false};
  bool was_asked = false;
  echo_.with = [&](ServerContext& context) {
    EXPECT_TRUE(context.MakeBuffer(100).ok());
    was_asked = polls_again;
  };
  Call call;
  ASSERT_TRUE(call.StartOn(*channel_).ok());
  ASSERT_TRUE(loop_.RunUntil([&] { return hoarder.waiting() == 1; }));
  std::thread other([&] {
    loop_.Pass();
    moved = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    polls_again = true;
    EXPECT_TRUE(loop_.RunUntil([&] { return call.ended(); }));
  });
  while (!moved) std::this_thread::yield();
  hoarder.RunAll();
  other.join();
  EXPECT_TRUE(was_asked);
  EXPECT_TRUE(call.status->ok()) << *call.status;
}

// Nothing arrives while it drains: only the time that has come wakes the loop.
TEST_F(OwnServerLoopTest, ADrainMovesOnWhenItIsTime) {
  ManualExecutor hoarder;
  Start(&hoarder);
  channel_ = NewChannel();
  loop_.Add(channel_.get());
  ASSERT_TRUE(channel_->SetServers({"h:1"}).ok());
  Call call;
  ASSERT_TRUE(call.StartOn(*channel_).ok());
  ASSERT_TRUE(loop_.RunUntil([&] { return hoarder.waiting() == 1; }));
  loop_.Settle();
  server_->BeginDrain(absl::Milliseconds(40));
  EXPECT_FALSE(server_->PrepareToSleep()) << "it has not been begun in Poll() yet";
  EXPECT_TRUE(loop_.RunUntil([&] { return server_->drain_phase() == call::DrainPhase::kOverdue; }));
  hoarder.RunAll();  // a handler is asked to stop, and may answer late
  EXPECT_TRUE(server_->Shutdown(absl::Seconds(25)).ok());
  channel_.reset();  // it did not run, so it waits for another server
  EXPECT_TRUE(call.ended());
}

// Nor does anything else in the loop wake it: its client has a thread, and more patience than this test.
TEST_F(OwnServerLoopTest, ADrainMovesOnThoughOnlyTheServerIsInTheLoop) {
  ManualExecutor hoarder;
  Start(&hoarder);
  Call call;
  RunBeside(server_.get(), [&] {
    auto channel = Channel::ConnectOn(std::make_unique<FakeStack>(&network_, fake_), "h:1");
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *channel;
    ASSERT_TRUE(call.StartOn(*channel_, absl::Hours(1)).ok());
  });
  ASSERT_TRUE(loop_.RunUntil([&] { return hoarder.waiting() == 1; }));
  loop_.Settle();
  server_->BeginDrain(absl::Milliseconds(40));
  EXPECT_TRUE(loop_.RunUntil([&] { return server_->drain_phase() == call::DrainPhase::kOverdue; }));
  hoarder.RunAll();
  EXPECT_TRUE(server_->Shutdown(absl::Seconds(25)).ok());
  channel_.reset();
  EXPECT_TRUE(call.ended());
}

TEST_F(OwnServerLoopTest, AnEndWaitsForAnswers) {
  ManualExecutor hoarder;
  Start(&hoarder);
  channel_ = NewChannel();
  loop_.Add(channel_.get());
  ASSERT_TRUE(channel_->SetServers({"h:1"}).ok());
  Call call;
  ASSERT_TRUE(call.StartOn(*channel_).ok());
  ASSERT_TRUE(loop_.RunUntil([&] { return hoarder.waiting() == 1; }));
  hoarder.RunAll();  // the answer waits for the loop
  EXPECT_TRUE(server_->Shutdown(absl::Seconds(25)).ok());
  ASSERT_TRUE(loop_.RunUntil([&] { return call.ended(); }));
  EXPECT_TRUE(call.status->ok()) << *call.status;
}

TEST_F(OwnServerLoopTest, AHandlerCantEndTheLoopItRunsIn) {
  Start();
  std::vector<absl::Status> ends;
  echo_.inside = [&] {
    EXPECT_EQ(server_->Poll(), 0);
    EXPECT_FALSE(server_->PrepareToSleep());
    ends = {server_->Drain(absl::Seconds(1)), server_->Shutdown(absl::Seconds(1))};
  };
  RunBeside(server_.get(), [&] { CallOnce(); });
  ASSERT_EQ(ends.size(), 2u);
  for (const absl::Status& end : ends) {
    EXPECT_EQ(end.code(), absl::StatusCode::kFailedPrecondition) << end;
  }
}

TEST_F(OwnServerLoopTest, ItsDestructorSaysGoodbye) {
  Start();
  std::shared_ptr<Channel> channel;
  RunBeside(server_.get(), [&] {
    auto made = Channel::ConnectOn(std::make_unique<FakeStack>(&network_, fake_), "h:1");
    ASSERT_TRUE(made.ok()) << made.status();
    channel = *made;
  });
  server_.reset();
  EXPECT_TRUE(
      channel->Drive([&] { return channel->connection_state() != call::ConnectionState::kUp; },
                     absl::Milliseconds(kHangMs)));
}

}  // namespace own_loop_test
}  // namespace sluice
