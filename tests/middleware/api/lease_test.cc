// SPDX-License-Identifier: Apache-2.0
//
// Lease under everything at once: synchronous callers with short deadlines, asynchronous callers
// that do not drive, one that does, one that only looks, while the server is killed and started
// again. Each call ends exactly once, with a status that such an end can have, and nobody waits for
// ever (that would be the test's timeout).
#include "middleware/api/lease.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "examples/echo/echo.sluice.h"
#include "middleware/api/server.h"
#include "tests/middleware/api/noticing.h"
#include "tests/support/fake_stack.h"

namespace sluice {
namespace lease_test {

using examples::echo::EchoClient;
using examples::echo::EchoServiceBase;
using examples::echo::SayReply;
using examples::echo::SayRequest;
using testing_support::FakeEndpoint;
using testing_support::FakeNetwork;
using testing_support::FakeStack;
using testing_support::Noticing;

class Echo final : public EchoServiceBase {
 public:
  absl::Status Say(ServerContext&, const SayRequest& request, SayReply* reply) override {
    reply->set_payload(request.payload());
    return absl::OkStatus();
  }
};

bool IsLegalEnd(const absl::Status& status) {
  return status.ok() || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status);
}

class LeaseTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  LeaseTest() { fake_.credits = 4; }

  void StartServer() {
    auto server = Server::CreateOn(std::make_unique<FakeStack>(&network_, fake_, &server_end_));
    ASSERT_TRUE(server.ok());
    server_ = *std::move(server);
    ASSERT_TRUE(server_->Register(&echo_).ok());
    ASSERT_TRUE(server_->Listen("h:1").ok());
  }

  FakeNetwork network_;
  FakeNetwork::Options fake_;
  Echo echo_;
  FakeEndpoint* server_end_ = nullptr;
  std::unique_ptr<Server> server_;
};

// Asynchronous calls of one thread, each waited for on a condition: whoever drives ends them.
struct Ticket {
  std::mutex mutex;
  std::condition_variable changed;
  int ended = 0;
  bool legal = true;
  static void Done(void* argument, const absl::Status& status) {
    auto* ticket = static_cast<Ticket*>(argument);
    std::lock_guard lock(ticket->mutex);
    ++ticket->ended;
    ticket->legal = IsLegalEnd(status);
    ticket->changed.notify_all();
  }
};

TEST_P(LeaseTest, EverythingAtOnceWhileTheServerComesAndGoes) {
  const uint32_t seed = GetParam();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  StartServer();
  ChannelOptions options;
  options.spin = absl::Microseconds(seed % 3 * 10);
  options.backoff_min = absl::Milliseconds(1);
  options.backoff_max = absl::Milliseconds(2);
  options.max_reconnect_attempts = 3;
  auto connected =
      Channel::ConnectOn(std::make_unique<FakeStack>(&network_, fake_), "h:1", options);
  ASSERT_TRUE(connected.ok()) << connected.status();
  const std::shared_ptr<Channel> channel = *connected;
  std::atomic<int> callers{0};
  std::vector<std::thread> threads;
  const auto caller = [&](auto work) {
    ++callers;
    threads.emplace_back([&callers, work, number = static_cast<uint32_t>(threads.size()), seed] {
      std::mt19937 random(seed * 100 + number);
      work(random);
      --callers;
    });
  };

  for (int t = 0; t < 4; ++t) {
    caller([&](std::mt19937& random) {
      const EchoClient client(channel);
      SayRequest request;
      SayReply reply;
      for (int i = 0; i < 150; ++i) {
        CallContext context(absl::Microseconds(100 + random() % 5000));
        context.set_wait_for_ready(random() % 2 == 0);
        request.set_payload(std::to_string(random()));
        const absl::Status status = client.Say(context, request, &reply);
        ASSERT_TRUE(IsLegalEnd(status)) << status;
        if (status.ok()) {
          ASSERT_EQ(reply.payload(), request.payload());
        }
      }
    });
  }
  for (int t = 0; t < 2; ++t) {
    caller([&](std::mt19937& random) {
      const SayRequest request;
      SayReply reply;
      for (int i = 0; i < 150; ++i) {
        Ticket ticket;
        const CallContext context(absl::Microseconds(100 + random() % 5000));
        const absl::Status started = channel->StartCall(EchoClient::SayMethod(), context, request,
                                                        &reply, &Ticket::Done, &ticket);
        ASSERT_TRUE(IsLegalEnd(started)) << started;
        if (!started.ok()) continue;
        std::unique_lock lock(ticket.mutex);
        ticket.changed.wait(lock, [&] { return ticket.ended > 0; });
        ASSERT_EQ(ticket.ended, 1);
        ASSERT_TRUE(ticket.legal);
      }
    });
  }
  caller([&](std::mt19937& random) {
    for (int i = 0; i < 30; ++i) {
      channel->Drive([] { return false; }, absl::Microseconds(random() % 1000));
      const call::ClientCounters counters = channel->counters();
      EXPECT_LE(counters.calls_ok + counters.calls_failed, counters.calls_started);
    }
  });

  std::mt19937 random(seed);
  while (callers.load() > 0) {
    // The time until the next harm is a race on purpose.
    for (uint32_t looks = random() % 200; looks > 0; --looks) std::this_thread::yield();
    server_end_->set_withhold_credits(random() % 3 == 0);
    if (random() % 4 != 0) continue;
    server_end_->Kill();
    server_.reset();
    StartServer();
  }
  for (std::thread& thread : threads) thread.join();

  const call::ClientCounters counters = channel->counters();
  EXPECT_EQ(counters.calls_started, counters.calls_ok + counters.calls_failed);
}

// What is submitted when the holder has looked for the last time is seen before it sleeps: nothing else would wake it.
class LeaseSleepTest : public ::testing::Test {};

TEST_F(LeaseSleepTest, ACancelJustBeforeTheHolderSleeps) {
  class Stuck final : public EchoServiceBase {
   public:
    absl::Status Say(ServerContext&, const SayRequest&, SayReply*) override {
      entered = true;
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return released; });
      return absl::OkStatus();
    }
    std::atomic<bool> entered{false};
    std::mutex mutex;
    std::condition_variable changed;
    bool released = false;
  };
  Stuck stuck;
  FakeNetwork network;
  FakeEndpoint* client_end = nullptr;
  auto server = Server::CreateOn(std::make_unique<FakeStack>(&network, FakeNetwork::Options()));
  ASSERT_TRUE(server.ok());
  ASSERT_TRUE((*server)->Register(&stuck).ok());
  ASSERT_TRUE((*server)->Listen("h:1").ok());
  ChannelOptions options;
  options.spin = absl::ZeroDuration();
  auto channel = Channel::ConnectOn(
      std::make_unique<FakeStack>(&network, FakeNetwork::Options(), &client_end), "h:1", options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  std::stop_source stop;
  client_end->set_before_sleep([&] {
    if (!stuck.entered || stop.stop_requested()) return;
    std::thread([&] { stop.request_stop(); }).join();
  });
  CallContext context = CallContext::NoDeadline();
  context.set_stop_token(stop.get_token());
  // It may have gone to sleep before the handler ran: then it looks up once, and goes to sleep again.
  std::thread handler([&] {
    while (!stuck.entered) std::this_thread::yield();
    client_end->Wake();
  });
  const absl::Status status = EchoClient(*channel).Say(context, SayRequest()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  handler.join();
  client_end->set_before_sleep(nullptr);
  {
    std::lock_guard lock(stuck.mutex);
    stuck.released = true;
  }
  stuck.changed.notify_all();
}

// The thread that drives serialises the calls of others: meanwhile more of them may come.
TEST(LeaseSubmissionTest, OtherThreadsAreNotLockedOutWhileACallIsStartedForOne) {
  FakeNetwork network;
  FakeEndpoint* client_end = nullptr;
  ChannelOptions options;
  options.connect_in_background = true;  // there is no server
  auto channel = Channel::ConnectOn(
      std::make_unique<FakeStack>(&network, FakeNetwork::Options(), &client_end), "h:1", options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  std::atomic<bool> drives{false};
  std::atomic<bool> over{false};
  std::thread driver([&] {
    (*channel)->Drive(
        [&] {
          drives = true;
          return over.load();
        },
        absl::InfiniteDuration());
  });
  while (!drives) std::this_thread::yield();

  std::stop_source stop;
  std::atomic<int> ended{0};
  const auto count = [&](const absl::Status& status) {
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
    ++ended;
  };
  SayReply replies[2];
  CallContext first = CallContext::NoDeadline();
  first.set_wait_for_ready(true);
  first.set_stop_token(stop.get_token());
  SayRequest request;
  ASSERT_TRUE(
      StartCall(channel->get(), EchoClient::SayMethod(), first, request, &replies[0], count).ok());
  // A stop goes to the thread that drives, through the lease.
  const Noticing noticing([&] { std::thread([&] { stop.request_stop(); }).join(); });
  CallContext second = CallContext::NoDeadline();
  second.set_wait_for_ready(true);
  ASSERT_TRUE(
      StartCall(channel->get(), EchoClient::SayMethod(), second, noticing, &replies[1], count)
          .ok());
  while (ended != 1) std::this_thread::yield();
  over = true;
  (void)(*channel)->counters();  // it looks up
  driver.join();
  channel->reset();
  EXPECT_EQ(ended, 2);
}

INSTANTIATE_TEST_SUITE_P(Seeds, LeaseTest, ::testing::Range(1u, 13u));

}  // namespace lease_test
}  // namespace sluice
