// SPDX-License-Identifier: Apache-2.0
//
// Channel and Server with generated code over the fake network: what a user sees, threads included.
#include "middleware/api/channel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "examples/echo/echo.sluice.h"
#include "middleware/api/lease.h"
#include "middleware/api/server.h"
#include "tests/support/fake_stack.h"
#include "tests/support/hold.h"
#include "transport/base/error.h"

namespace sluice {
namespace channel_test {

using examples::echo::EchoClient;
using examples::echo::EchoServiceBase;
using examples::echo::SayReply;
using examples::echo::SayRequest;
using testing_support::FakeEndpoint;
using testing_support::FakeNetwork;
using testing_support::FakeStack;

constexpr char kAddress[] = "fake-host:7471";

// "big <n>" answers with n bytes, "fail" with an error, "hold" waits until the test lets it go.
class EchoImpl final : public EchoServiceBase {
 public:
  absl::Status Say(ServerContext& context, const SayRequest& request, SayReply* reply) override {
    if (request.payload().rfind("big ", 0) == 0) {
      reply->set_payload(std::string(std::stoul(request.payload().substr(4)), 'b'));
      return absl::OkStatus();
    }
    if (request.payload() == "fail") {
      return base::Error(absl::StatusCode::kNotFound, "nothing of that name",
                         {.layer = "test", .operation = context.method(), .retry_safe = true});
    }
    if (request.payload() == "time left") {
      reply->set_payload(absl::FormatDuration(context.time_left_on_arrival()));
      return absl::OkStatus();
    }
    if (request.payload() == "hold") hold.Wait();
    reply->set_payload(request.payload());
    return absl::OkStatus();
  }

  testing_support::Hold hold;
};

class ChannelTest : public ::testing::Test {
 protected:
  void StartServer(ServerOptions options = {}) {
    FakeNetwork::Options fake;
    fake.credits = credits_;
    auto server =
        Server::CreateOn(std::make_unique<FakeStack>(&network_, fake, &server_end_), options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->Register(&echo_).ok());
    const auto port = server_->Listen(kAddress);
    ASSERT_TRUE(port.ok()) << port.status();
    EXPECT_EQ(*port, 7471);
  }

  absl::StatusOr<std::shared_ptr<Channel>> Connect(ChannelOptions options = {}) {
    FakeNetwork::Options fake;
    fake.credits = credits_;
    return Channel::ConnectOn(std::make_unique<FakeStack>(&network_, fake, &client_end_), kAddress,
                              options);
  }

  std::shared_ptr<Channel> MustConnect(ChannelOptions options = {}) {
    auto channel = Connect(options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return channel.ok() ? *channel : nullptr;
  }

  static absl::StatusOr<std::string> Say(const EchoClient& client, const std::string& text,
                                         absl::Duration timeout = absl::Seconds(30)) {
    CallContext context(timeout);
    SayRequest request;
    request.set_payload(text);
    auto reply = client.Say(context, request);
    if (!reply.ok()) return reply.status();
    return reply->payload();
  }

  int credits_ = 64;
  FakeNetwork network_;
  EchoImpl echo_;
  FakeEndpoint* server_end_ = nullptr;
  FakeEndpoint* client_end_ = nullptr;
  std::unique_ptr<Server> server_;
};

TEST_F(ChannelTest, ForkedChildIsToldThatTheChannelIsItsParents) {
  StartServer();
  auto channel = MustConnect();
  std::optional<EchoClient> client(channel);
  const pid_t child = fork();
  if (child == 0) {
    CallContext context(absl::Seconds(30));
    SayRequest request;
    SayReply reply;
    const absl::Status called = Say(*client, "of the child").status();
    const absl::Status started =
        client->StartSay(context, request, &reply, [](const absl::Status&) {});
    // Neither waits for the threads of the parent.
    const bool driven = channel->Drive([] { return true; }, absl::InfiniteDuration());
    const absl::Status awaited = channel->WaitUntilConnected(absl::Seconds(30));
    const bool closed =
        channel->connection_state() == ConnectionState::kClosed &&
        channel->WaitForStateChange(ConnectionState::kClosed, absl::InfiniteDuration()) ==
            ConnectionState::kClosed;
    client.reset();
    channel.reset();
    _exit((closed ? 0 : 16) + (absl::IsFailedPrecondition(called) ? 0 : 1) +
          (absl::IsFailedPrecondition(started) ? 0 : 2) + (driven ? 4 : 0) +
          (absl::IsFailedPrecondition(awaited) ? 0 : 8));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(*Say(*client, "of the parent"), "of the parent");
}

TEST_F(ChannelTest, SayBothStyles) {
  StartServer();
  EchoClient client(MustConnect());
  EXPECT_EQ(*Say(client, "hello"), "hello");

  CallContext context(absl::Seconds(30));
  SayRequest request;
  SayReply reply;
  for (int i = 0; i < 3; ++i) {
    request.set_payload("turn " + std::to_string(i));
    ASSERT_TRUE(client.Say(context, request, &reply).ok());
    EXPECT_EQ(reply.payload(), request.payload());
  }
}

TEST_F(ChannelTest, ErrorOfHandlerArrivesWholeWithItsDetail) {
  StartServer();
  EchoClient client(MustConnect());
  const auto reply = Say(client, "fail");
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(reply.status().message(), "nothing of that name");
  const auto detail = base::DetailOf(reply.status());
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->operation(), "/sluice.examples.echo.Echo/Say");
  EXPECT_FALSE(detail->retry_safe());  // as the handler said; but it ran
}

TEST_F(ChannelTest, UnknownMethodIsNamed) {
  StartServer();
  auto channel = MustConnect();
  static constexpr Method kShout("/sluice.examples.echo.Echo/Shout");
  CallContext context(absl::Seconds(30));
  SayReply reply;
  const absl::Status status = channel->Call(kShout, context, SayRequest(), &reply);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(std::string(status.message()).find("/sluice.examples.echo.Echo/Shout"),
            std::string::npos)
      << status;
  EXPECT_NE(std::string(status.message()).find("/sluice.examples.echo.Echo/Say"), std::string::npos)
      << status;
}

// The lower limit of both ends holds.
TEST_F(ChannelTest, MessagesOverTheLimitNameBothSizes) {
  ServerOptions options;
  options.limits.max_large_message_bytes = 20003;
  StartServer(options);
  EchoClient client(MustConnect());
  const absl::Status request = Say(client, std::string(20000, 'x')).status();
  EXPECT_EQ(request.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(request.message()).find("20004"), std::string::npos) << request;
  EXPECT_NE(std::string(request.message()).find("20003"), std::string::npos) << request;
  const absl::Status reply = Say(client, "big 30000").status();
  EXPECT_EQ(reply.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(reply.message()).find("30004"), std::string::npos) << reply;
  EXPECT_NE(std::string(reply.message()).find("20003"), std::string::npos) << reply;
  EXPECT_EQ(*Say(client, "still here"), "still here");
}

TEST_F(ChannelTest, LargeMessages) {
  StartServer();
  EchoClient client(MustConnect());
  for (const size_t size : {16334, 16335, 100'000, 5 << 20}) {
    const std::string text(size, 'x');
    EXPECT_EQ(*Say(client, text), text) << size;
  }
  EXPECT_EQ(Say(client, "big 7000000")->size(), 7'000'000u);
}

TEST_F(ChannelTest, LargestMessageThatFits) {
  ServerOptions options;
  options.limits.max_large_message_bytes = 0;
  StartServer(options);
  EchoClient client(MustConnect());
  const std::string text(16384 - 48 - 3, 'x');  // 1 byte tag, 2 bytes length
  EXPECT_EQ(*Say(client, text), text);
  EXPECT_EQ(Say(client, text + "x").status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ChannelTest, DeadlineIsHonouredWhileTheServerIsSilent) {
  StartServer();
  auto channel = MustConnect();
  EchoClient client(channel);
  std::thread holder([&] { EXPECT_EQ(*Say(client, "hold"), "hold"); });
  echo_.hold.WaitUntilHolding();
  const absl::Status status = Say(client, "late", absl::Milliseconds(20)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(std::string(status.message()).find("Echo/Say"), std::string::npos) << status;
  echo_.hold.Release();
  holder.join();
  EXPECT_EQ(*Say(client, "again"), "again");
  EXPECT_EQ(channel->counters().late_replies, 1u);
}

TEST_F(ChannelTest, DeadlineThatHasPassedSendsNothing) {
  StartServer();
  auto channel = MustConnect();
  EchoClient client(channel);
  EXPECT_EQ(Say(client, "no", absl::ZeroDuration()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Say(client, "no", -absl::InfiniteDuration()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(channel->counters().calls_started, 0u);
}

TEST_F(ChannelTest, TimeLeftReachesTheHandler) {
  StartServer();
  EchoClient client(MustConnect());
  absl::Duration left;
  ASSERT_TRUE(absl::ParseDuration(*Say(client, "time left", absl::Seconds(100)), &left));
  EXPECT_LE(left, absl::Seconds(100));
  EXPECT_GT(left, absl::ZeroDuration());
  EXPECT_EQ(*Say(client, "time left", absl::InfiniteDuration()), "inf");
}

TEST_F(ChannelTest, RefusedConnectSaysSo) {
  const auto channel = Connect();
  EXPECT_EQ(channel.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(channel.status().message()).find("fake-host:7471"), std::string::npos);
}

TEST_F(ChannelTest, ConnectWithoutAnswerEndsAtItsTimeout) {
  network_.set_silent(true);
  ChannelOptions options;
  options.connect_timeout = absl::Milliseconds(20);
  EXPECT_EQ(Connect(options).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ChannelTest, ServerThatDiesEndsCallsAndIsFoundAgain) {
  StartServer();
  ChannelOptions options;
  options.backoff_min = absl::Milliseconds(1);
  options.backoff_max = absl::Milliseconds(2);
  auto channel = MustConnect(options);
  EchoClient client(channel);
  absl::Status under_way;
  std::thread holder([&] { under_way = Say(client, "hold").status(); });
  echo_.hold.WaitUntilHolding();
  server_end_->Kill();
  holder.join();
  EXPECT_EQ(under_way.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(base::DetailOf(under_way)->retry_safe());
  const absl::Status next = Say(client, "hello").status();
  EXPECT_EQ(next.code(), absl::StatusCode::kUnavailable) << next;
  EXPECT_TRUE(base::DetailOf(next)->retry_safe());

  echo_.hold.Release();
  server_.reset();
  StartServer();
  CallContext context(absl::Seconds(30));
  context.set_wait_for_ready(true);
  EXPECT_TRUE(client.Say(context, SayRequest()).ok());
  EXPECT_EQ(channel->counters().connections, 2u);
}

TEST_F(ChannelTest, ServerIsFoundAgainWhileSomebodyLooksAllTheTime) {
  StartServer();
  ChannelOptions options;
  options.backoff_min = absl::Milliseconds(1);
  options.backoff_max = absl::Milliseconds(2);
  auto channel = MustConnect(options);
  server_end_->Kill();
  server_.reset();
  StartServer();
  const absl::Time give_up = absl::Now() + absl::Seconds(30);
  std::vector<std::thread> curious;
  for (int t = 0; t < 4; ++t) {
    curious.emplace_back([&] {
      while (channel->counters().connections != 2 && absl::Now() < give_up) {
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : curious) thread.join();
  EXPECT_EQ(channel->counters().connections, 2u);
}

TEST_F(ChannelTest, ManyThreadsOnOneChannel) {
  credits_ = 4;  // so that calls wait for credit too
  StartServer();
  ChannelOptions options;
  options.spin = absl::Microseconds(5);  // so that drivers sleep too
  auto channel = MustConnect(options);
  EchoClient client(channel);
  constexpr int kThreads = 6;
  constexpr int kCalls = 300;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      CallContext context(absl::Seconds(60));
      SayRequest request;
      SayReply reply;
      for (int i = 0; i < kCalls; ++i) {
        request.set_payload(std::to_string(t) + ":" + std::to_string(i));
        const absl::Status status = client.Say(context, request, &reply);
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(reply.payload(), request.payload());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const call::ClientCounters counters = channel->counters();
  EXPECT_EQ(counters.calls_ok, uint64_t{kThreads * kCalls});
  EXPECT_EQ(counters.calls_failed, 0u);
}

TEST_F(ChannelTest, DeadlinesOfWaitingThreadsAreKeptByTheDriver) {
  StartServer();
  EchoClient client(MustConnect());
  std::thread holder([&] { EXPECT_EQ(*Say(client, "hold"), "hold"); });
  echo_.hold.WaitUntilHolding();
  std::vector<std::thread> threads;
  std::atomic<int> exceeded{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const absl::Status status = Say(client, "late", absl::Milliseconds(5 + 10 * t)).status();
      if (absl::IsDeadlineExceeded(status)) ++exceeded;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(exceeded.load(), 4);
  echo_.hold.Release();
  holder.join();
}

// A closed loop of asynchronous calls: callbacks start the next ones. Belongs to whoever drives,
// from the first call of Run() on.
struct Window {
  struct Place {
    Window* window;
    SayRequest request;
    SayReply reply;
  };
  // For Drive(): starts a call in each place at first; true when all calls have ended.
  bool Run(std::vector<Place>* places) {
    if (started == 0) {
      for (Place& place : *places) {
        place.window = this;
        Start(&place);
      }
    }
    return ended == total;
  }
  void Start(Place* place) {
    place->request.set_payload(std::to_string(started++));
    const absl::Status status = channel->StartCall(
        EchoClient::SayMethod(), context, place->request, &place->reply,
        [](void* argument, const absl::Status& status) {
          auto* place = static_cast<Place*>(argument);
          place->window->Ended(place, status);
        },
        place);
    EXPECT_TRUE(status.ok()) << status;
  }
  void Ended(Place* place, const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(place->reply.payload(), place->request.payload());
    ++ended;
    if (started < total) Start(place);
  }
  Channel* channel;
  int total;
  CallContext context{absl::Seconds(60)};
  int started = 0;
  int ended = 0;
};

TEST_F(ChannelTest, WindowOfAsynchronousCallsDrivenByOneThread) {
  StartServer();
  auto channel = MustConnect();
  Window window{channel.get(), 2000};
  std::vector<Window::Place> places(100);
  EXPECT_TRUE(channel->Drive([&] { return window.Run(&places); }, absl::Seconds(60)));
  EXPECT_EQ(window.ended, window.total);
}

TEST_F(ChannelTest, AsynchronousCallsEndInTheBackgroundWhenNobodyDrives) {
  StartServer();
  auto channel = MustConnect();
  std::mutex mutex;
  std::condition_variable changed;
  int ended = 0;
  struct Place {
    std::mutex* mutex;
    std::condition_variable* changed;
    int* ended;
    SayRequest request;
    SayReply reply;
  };
  for (int round = 0; round < 50; ++round) {
    Place place{&mutex, &changed, &ended, {}, {}};
    CallContext context(absl::Seconds(60));
    ASSERT_TRUE(channel
                    ->StartCall(
                        EchoClient::SayMethod(), context, place.request, &place.reply,
                        [](void* argument, const absl::Status& status) {
                          auto* place = static_cast<Place*>(argument);
                          EXPECT_TRUE(status.ok()) << status;
                          std::lock_guard lock(*place->mutex);
                          ++*place->ended;
                          place->changed->notify_all();
                        },
                        &place)
                    .ok());
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ended == round + 1; });
  }
}

TEST_F(ChannelTest, SynchronousAsynchronousAndDrivingThreadsAtOnce) {
  StartServer();
  ChannelOptions options;
  options.spin = absl::Microseconds(5);
  auto channel = MustConnect(options);
  EchoClient client(channel);
  Window window{channel.get(), 500};
  std::vector<Window::Place> places(8);
  std::thread synchronous([&] {
    for (int i = 0; i < 200; ++i) ASSERT_EQ(*Say(client, std::to_string(i)), std::to_string(i));
  });
  std::thread curious([&] {
    for (int i = 0; i < 200; ++i) EXPECT_EQ(channel->counters().calls_failed, 0u);
  });
  EXPECT_TRUE(channel->Drive([&] { return window.Run(&places); }, absl::Seconds(60)));
  synchronous.join();
  curious.join();
  EXPECT_EQ(channel->counters().calls_ok, 700u);
}

TEST_F(ChannelTest, DriveThatNeverGetsTheChannelDoesNotAsk) {
  StartServer();
  auto channel = MustConnect();
  // A callback that keeps the background thread, and with it the channel.
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool reached = false;
    bool open = false;
  } gate;
  SayRequest request;
  SayReply reply;
  CallContext context(absl::Seconds(60));
  ASSERT_TRUE(channel
                  ->StartCall(
                      EchoClient::SayMethod(), context, request, &reply,
                      [](void* argument, const absl::Status&) {
                        auto* gate = static_cast<Gate*>(argument);
                        std::unique_lock lock(gate->mutex);
                        gate->reached = true;
                        gate->changed.notify_all();
                        gate->changed.wait(lock, [&] { return gate->open; });
                      },
                      &gate)
                  .ok());
  std::unique_lock lock(gate.mutex);
  gate.changed.wait(lock, [&] { return gate.reached; });
  bool asked = false;
  const auto until = [&] { return asked = true; };
  EXPECT_FALSE(channel->Drive(until, absl::Milliseconds(1)));
  EXPECT_FALSE(asked);
  gate.open = true;
  gate.changed.notify_all();
  lock.unlock();
  EXPECT_TRUE(channel->Drive(until, absl::Seconds(60)));
}

TEST_F(ChannelTest, SynchronousCallFromACallbackIsRefused) {
  StartServer();
  auto channel = MustConnect();
  struct State {
    Channel* channel;
    std::optional<absl::Status> inner;
  } state{channel.get(), std::nullopt};
  SayRequest request;
  SayReply reply;
  CallContext context(absl::Seconds(60));
  ASSERT_TRUE(channel
                  ->StartCall(
                      EchoClient::SayMethod(), context, request, &reply,
                      [](void* argument, const absl::Status&) {
                        auto* state = static_cast<State*>(argument);
                        CallContext context(absl::Seconds(1));
                        SayReply reply;
                        state->inner = state->channel->Call(EchoClient::SayMethod(), context,
                                                            SayRequest(), &reply);
                      },
                      &state)
                  .ok());
  // The background thread may run the callback: asked with the lease, the answer is safe to read.
  EXPECT_TRUE(channel->Drive([&] { return state.inner.has_value(); }, absl::Seconds(60)));
  EXPECT_EQ(state.inner->code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ChannelTest, ClosingAChannelCancelsWhatIsUnderWay) {
  StartServer();
  auto channel = MustConnect();
  server_end_->set_drop(true);
  SayRequest request;
  SayReply reply;
  std::vector<absl::StatusCode> ends;
  CallContext context = CallContext::NoDeadline();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(channel
                    ->StartCall(
                        EchoClient::SayMethod(), context, request, &reply,
                        [](void* argument, const absl::Status& status) {
                          static_cast<std::vector<absl::StatusCode>*>(argument)->push_back(
                              status.code());
                        },
                        &ends)
                    .ok());
  }
  channel.reset();
  EXPECT_EQ(ends, std::vector(3, absl::StatusCode::kCancelled));
}

TEST_F(ChannelTest, IdleChannelDoesNotPoll) {
  StartServer();
  auto channel = MustConnect();
  EchoClient client(channel);
  EXPECT_EQ(*Say(client, "hello"), "hello");
  // A watch period after the call the background thread looks, arms, and sleeps. From then on
  // nothing happens: not in six further periods.
  client_end_->WaitUntilArmed();
  EXPECT_FALSE(client_end_->PollsWithin(absl::Nanoseconds(6 * Lease::kWatchNs)));
  EXPECT_EQ(*Say(client, "awake"), "awake");
}

TEST_F(ChannelTest, ShutdownEndsCallsOfClients) {
  StartServer();
  EchoClient client(MustConnect());
  EXPECT_EQ(*Say(client, "hello"), "hello");
  EXPECT_TRUE(server_->Shutdown(absl::Seconds(10)).ok());
  EXPECT_EQ(Say(client, "gone").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server_->counters().requests, 1u);
  EXPECT_TRUE(server_->Shutdown(absl::Seconds(10)).ok());
}

}  // namespace channel_test
}  // namespace sluice
