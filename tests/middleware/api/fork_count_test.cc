// SPDX-License-Identifier: Apache-2.0
//
// Servers, messengers, bulk objects, thread pools and file resolvers in a child that was forked after they were created. Channels and runtimes have tests of their own.
#include "middleware/api/fork_count.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "examples/echo/echo.sluice.h"
#include "examples/echo/echo_service.h"
#include "middleware/api/channel.h"
#include "middleware/api/messenger.h"
#include "middleware/api/resolver.h"
#include "middleware/api/server.h"
#include "middleware/api/thread_pool.h"
#include "tests/middleware/api/bulk_pair.h"
#include "tests/support/in_child.h"

namespace sluice {
namespace fork_count_test {

using testing_support::InChild;

void ExpectRefused(const absl::Status& status, const std::string& object) {
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("the " + object + " belongs to another process"),
            std::string::npos)
      << status;
}

std::string Say(Channel* channel, const std::string& text) {
  CallContext context(absl::Seconds(30));
  examples::echo::SayRequest request;
  examples::echo::SayReply reply;
  request.set_payload(text);
  examples::echo::EchoClient client(channel->shared_from_this());
  const absl::Status status = client.Say(context, request, &reply);
  return status.ok() ? reply.payload() : std::string(status.message());
}

TEST(ForkTest, CreatorKnowsAChildAndAChildOfAChild) {
  const internal::Creator creator;
  EXPECT_FALSE(creator.InForkedChild());
  InChild([&] {
    EXPECT_TRUE(creator.InForkedChild());
    const internal::Creator own;
    EXPECT_FALSE(own.InForkedChild());
    InChild([&] {
      EXPECT_TRUE(creator.InForkedChild());
      EXPECT_TRUE(own.InForkedChild());
    });
  });
  EXPECT_FALSE(creator.InForkedChild());
}

class ForkedServerTest : public testing::TestWithParam<Driving> {};

TEST_P(ForkedServerTest, IsOfNoUseInTheChildAndGoesOnInTheParent) {
  examples::echo::EchoService echo;
  ServerOptions options;
  options.device = "softdc0";
  options.driving = GetParam();
  auto server = *Server::Create(options);
  ASSERT_TRUE(server->Register(&echo).ok());
  const auto port = server->Listen("127.0.0.1:0");
  ASSERT_TRUE(port.ok()) << port.status();
  if (GetParam() == Driving::kThreads) {
    auto channel = *Channel::Connect("127.0.0.1:" + std::to_string(*port), {.device = "softdc0"});
    EXPECT_EQ(Say(channel.get(), "before"), "before");
    EXPECT_GT(server->Snapshot().transport.messages_received, 0u);
  }
  InChild([&] {
    ExpectRefused(server->Register(&echo), "server");
    ExpectRefused(server->Listen("127.0.0.1:0").status(), "server");
    ExpectRefused(server->Wait(), "server");
    ExpectRefused(server->Drain(absl::InfiniteDuration()), "server");
    ExpectRefused(server->Shutdown(absl::InfiniteDuration()), "server");
    server->BeginDrain(absl::ZeroDuration());
    server->Wake();
    EXPECT_EQ(server->Poll(), 0);
    EXPECT_FALSE(server->PrepareToSleep());
    EXPECT_FALSE(server->Snapshot(10, absl::InfiniteDuration()).fresh);
    EXPECT_EQ(server->endpoint_counters().messages_received, 0u);
    server.reset();
  });
  EXPECT_EQ(server->drain_phase(), call::DrainPhase::kServing);
  if (GetParam() == Driving::kThreads) {
    auto channel = *Channel::Connect("127.0.0.1:" + std::to_string(*port), {.device = "softdc0"});
    EXPECT_EQ(Say(channel.get(), "after"), "after");
  }
  EXPECT_TRUE(server->Shutdown(absl::Seconds(10)).ok());
}

INSTANTIATE_TEST_SUITE_P(Driving, ForkedServerTest,
                         testing::Values(Driving::kThreads, Driving::kCaller));

TEST(ForkedServerTest, OneThatNeverListenedToo) {
  examples::echo::EchoService echo;
  auto server = *Server::Create({.device = "softdc0"});
  InChild([&] {
    ExpectRefused(server->Register(&echo), "server");
    ExpectRefused(server->Listen("127.0.0.1:0").status(), "server");
    server.reset();
  });
  EXPECT_TRUE(server->Register(&echo).ok());
  EXPECT_TRUE(server->Listen("127.0.0.1:0").ok());
}

struct Echo final : FlowHandler {
  void OnOpen(Flow flow) override {
    if (sends) EXPECT_TRUE(flow.Send(std::as_bytes(std::span("x", 1))).ok());
  }
  void OnMessage(Flow flow, std::span<const std::byte> message) override {
    ++heard;
    if (!sends) EXPECT_TRUE(flow.Send(message).ok());
  }
  void OnClosed(Flow, const absl::Status&, const FlowTotals&) override { ++closed; }
  bool sends = false;
  int heard = 0;
  int closed = 0;
};

TEST(ForkedMessengerTest, IsOfNoUseInTheChildAndGoesOnInTheParent) {
  Echo here, there;
  here.sends = true;
  auto messenger = *Messenger::Create({.device = "softdc0"});
  auto other = *Messenger::Create({.device = "softdc0"});
  ASSERT_TRUE(other->Accept("echo", {}, [&](Flow, const Offer&) { return &there; }).ok());
  const auto port = other->Listen("127.0.0.1:0");
  ASSERT_TRUE(port.ok()) << port.status();
  const std::string address = "127.0.0.1:" + std::to_string(*port);
  const auto heard = [&](int number) {
    const absl::Time end = absl::Now() + absl::Seconds(30);
    while (here.heard != number && here.closed == 0 && absl::Now() < end) {
      messenger->Poll();
      other->Poll();
    }
    return here.heard == number;
  };
  ASSERT_TRUE(messenger->Open(address, "echo", {}, &here).ok());
  ASSERT_TRUE(heard(1));
  InChild([&] {
    ExpectRefused(messenger->Listen("127.0.0.1:0").status(), "messenger");
    ExpectRefused(messenger->Accept("more", {}, [&](Flow, const Offer&) { return &here; }),
                  "messenger");
    ExpectRefused(messenger->Open(address, "echo", {}, &here).status(), "messenger");
    EXPECT_EQ(messenger->Poll(), 0);
    EXPECT_FALSE(messenger->Drive([] { return true; }, absl::InfiniteDuration()));
    EXPECT_FALSE(messenger->PrepareToSleep());
    EXPECT_EQ(messenger->endpoint_counters().messages_received, 0u);
    messenger->Wake();
    messenger->Close();
    messenger.reset();
    other.reset();
    EXPECT_EQ(here.closed + there.closed, 0);
  });
  ASSERT_TRUE(messenger->Open(address, "echo", {}, &here).ok());
  EXPECT_TRUE(heard(2));
  EXPECT_EQ(here.closed, 0);
}

// Another thread may fork while the loop runs a handler, so the child may find the object so for ever.
TEST(ForkedMessengerTest, MayBeDestroyedByAChildThatWasForkedDuringAHandler) {
  struct Forker final : FlowHandler {
    void OnMessage(Flow, std::span<const std::byte>) override {}
    void OnClosed(Flow, const absl::Status&, const FlowTotals&) override {
      InChild([this] {
        EXPECT_EQ((*messenger)->Poll(), 0);
        EXPECT_FALSE((*messenger)->Drive([] { return true; }, absl::InfiniteDuration()));
        messenger->reset();
      });
      closed = true;
    }
    std::unique_ptr<Messenger>* messenger = nullptr;
    bool closed = false;
  } handler;
  auto messenger = *Messenger::Create({.device = "softdc0"});
  handler.messenger = &messenger;
  // Nobody listens there.
  ASSERT_TRUE(messenger->Open("127.0.0.1:1", "nobody", {}, &handler).ok());
  EXPECT_TRUE(messenger->Drive([&] { return handler.closed; }, absl::Seconds(30)));
}

class ForkedBulkTest : public testing_support::BulkPair {
 protected:
  ForkedBulkTest() : BulkPair(/*blocks=*/4) {}
};

TEST_F(ForkedBulkTest, IsOfNoUseInTheChildAndGoesOnInTheParent) {
  InChild([&] {
    std::string text;
    ExpectRefused(one_->Offer(&text).status(), "bulk object");
    ExpectRefused(one_->Accept(text, &text).status(), "bulk object");
    ExpectRefused(one_->Complete(at_one_, text), "bulk object");
    ExpectRefused(one_->Lend(source_, 0).status(), "bulk object");
    ExpectRefused(one_->Return(own_), "bulk object");
    ExpectRefused(one_->Start(at_one_, Request(), [](const absl::Status&) {}).status(),
                  "bulk object");
    ExpectRefused(one_->Cancel({}), "bulk object");
    ExpectRefused(one_->Move(at_one_, Request()), "bulk object");
    ExpectRefused(one_->Await(at_one_, 0, absl::InfiniteDuration()).status(), "bulk object");
    ExpectRefused(one_->Health(), "bulk object");
    one_.reset();
    other_.reset();
  });
  EXPECT_TRUE(one_->Move(at_one_, Request(/*tag=*/1)).ok());
  EXPECT_TRUE(other_->Await(at_other_, 1, absl::Seconds(30)).ok());
}

// Its threads wait for work, and one of them is at work, when the process forks.
TEST(ForkedThreadPoolTest, IsOfNoUseInTheChildAndGoesOnInTheParent) {
  auto pool = std::make_unique<ThreadPool>(3);
  std::atomic<bool> goes_on = false;
  std::atomic<int> done = 0;
  pool->Run([&] {
    goes_on.wait(false);
    ++done;
  });
  InChild([&] {
    bool kept = true;
    struct Note {
      explicit Note(bool* to) : to(to) {}
      ~Note() { *to = false; }
      bool* const to;
    };
    pool->Run([note = std::make_unique<Note>(&kept)] { _exit(2); });
    EXPECT_FALSE(kept);
    EXPECT_EQ(pool->threads(), 0u);
    EXPECT_EQ(pool->waiting(), 0u);
    pool.reset();
  });
  EXPECT_EQ(pool->threads(), 3u);
  pool->Run([&] { ++done; });
  goes_on = true;
  goes_on.notify_all();
  pool.reset();
  EXPECT_EQ(done, 2);
}

// Its thread is the child's, and ends with it.
TEST(ForkedFileResolverTest, MayBeStartedInTheChild) {
  const std::string path = testing::TempDir() + "/servers_of_a_child";
  std::ofstream(path) << "a:1\n";
  auto resolver = std::make_unique<FileResolver>(path);
  InChild([&] {
    std::atomic<bool> ended = false;
    bool late = false;
    const auto listener = [&](const std::vector<std::string>&) {
      late = ended;
      return absl::OkStatus();
    };
    EXPECT_TRUE(resolver->Start(listener).ok());
    resolver.reset();
    ended = true;
    std::ofstream(path) << "b:2\n";
    EXPECT_FALSE(late);
    int threads = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator("/proc/self/task")) {
      ++threads;
    }
    EXPECT_EQ(threads, 1);
  });
}

TEST(ForkedFileResolverTest, MayBeDestroyedInTheChildAndGoesOnInTheParent) {
  const std::string path = testing::TempDir() + "/servers_of_a_parent";
  std::ofstream(path) << "a:1\n";
  std::atomic<size_t> servers = 0;
  auto resolver = std::make_unique<FileResolver>(path);
  ASSERT_TRUE(resolver
                  ->Start([&](const std::vector<std::string>& list) {
                    servers = list.size();
                    servers.notify_all();
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_EQ(servers, 1u);
  InChild([&] {
    resolver.reset();
    FileResolver own(path);
    EXPECT_TRUE(own.Start([](const std::vector<std::string>&) { return absl::OkStatus(); }).ok());
  });
  std::ofstream(path + ".new") << "a:1\nb:2\n";
  ASSERT_EQ(std::rename((path + ".new").c_str(), path.c_str()), 0);
  servers.wait(1);
  EXPECT_EQ(servers, 2u);
}

}  // namespace fork_count_test
}  // namespace sluice
