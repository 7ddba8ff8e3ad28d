// SPDX-License-Identifier: Apache-2.0
//
// A server with several polling threads, over the software NIC: who connects is spread by RDMA_CM, the rest is theirs.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "examples/echo/echo.sluice.h"
#include "middleware/api/server.h"
#include "tests/support/fake_stack.h"
#include "tests/support/hold.h"

namespace sluice {
namespace pollers_test {

using examples::echo::EchoClient;
using examples::echo::EchoServiceBase;
using examples::echo::SayReply;
using examples::echo::SayRequest;

constexpr absl::Duration kLong = absl::Seconds(30);  // a hang; nothing waits for it otherwise

// Answers with the thread that it ran on. "block" waits until Release().
class WhereEcho final : public EchoServiceBase {
 public:
  absl::Status Say(ServerContext&, const SayRequest& request, SayReply* reply) override {
    {
      std::lock_guard lock(mutex_);
      const auto here = std::this_thread::get_id();
      const auto at = std::find(threads_.begin(), threads_.end(), here);
      reply->set_payload(std::to_string(at - threads_.begin()));
      if (at == threads_.end()) threads_.push_back(here);
    }
    if (request.payload() == "block") hold.Wait();
    return absl::OkStatus();
  }
  testing_support::Hold hold;

 private:
  std::mutex mutex_;
  std::vector<std::thread::id> threads_;
};

class PollersTest : public ::testing::Test {
 protected:
  ~PollersTest() override { echo_.hold.Release(); }

  void Start(uint32_t pollers) {
    ServerOptions options;
    options.device = "softdc0";
    options.pollers = pollers;
    auto server = Server::Create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->Register(&echo_).ok());
    auto port = server_->Listen("127.0.0.1:0");
    ASSERT_TRUE(port.ok()) << port.status();
    address_ = "127.0.0.1:" + std::to_string(*port);
  }
  void Connect(int count) {
    ChannelOptions options;
    options.device = "softdc0";
    options.connect_timeout = kLong;
    while (count-- > 0) {
      auto channel = Channel::Connect(address_, options);
      ASSERT_TRUE(channel.ok()) << channel.status();
      channels_.push_back(*channel);
    }
  }
  // Which thread it ran on.
  static std::string Say(const std::shared_ptr<Channel>& channel, const std::string& what = "") {
    SayRequest request;
    SayReply reply;
    request.set_payload(what);
    CallContext context(kLong);
    const absl::Status status = EchoClient(channel).Say(context, request, &reply);
    EXPECT_TRUE(status.ok()) << status;
    return reply.payload();
  }
  WhereEcho echo_;
  std::string address_;
  std::unique_ptr<Server> server_;
  std::vector<std::shared_ptr<Channel>> channels_;
};

TEST_F(PollersTest, ClientsAreSpreadAndCountsAreOfAllTogether) {
  Start(2);
  Connect(4);
  std::vector<std::string> ran_on;
  for (const auto& channel : channels_) ran_on.push_back(Say(channel));
  // Two each, but for attempts to connect that a busy machine makes twice.
  EXPECT_GE(std::count(ran_on.begin(), ran_on.end(), "0"), 1);
  EXPECT_GE(std::count(ran_on.begin(), ran_on.end(), "1"), 1);
  for (size_t i = 0; i < channels_.size(); ++i) EXPECT_EQ(Say(channels_[i]), ran_on[i]);

  const ServerSnapshot snapshot = server_->Snapshot(3, kLong);
  EXPECT_TRUE(snapshot.fresh);
  ASSERT_EQ(snapshot.pollers.size(), 2u);
  for (const PollerSnapshot& poller : snapshot.pollers) {
    EXPECT_TRUE(poller.fresh);
    EXPECT_EQ(poller.requests, 2 * poller.peers);
    EXPECT_GT(poller.requests, 0u);
  }
  EXPECT_EQ(snapshot.pollers[0].peers + snapshot.pollers[1].peers, 4u);
  EXPECT_EQ(snapshot.calls.requests, 8u);
  EXPECT_GE(snapshot.handshakes.completed, 4u);
  EXPECT_EQ(snapshot.peers.size(), 3u);
  EXPECT_EQ(snapshot.peers_in_all, 4u);
  ASSERT_EQ(snapshot.methods.size(), 1u);
  EXPECT_EQ(snapshot.methods[0].ended[0], 8u);
  const std::vector<base::TraceRecord> trace = server_->Trace();
  EXPECT_TRUE(std::is_sorted(trace.begin(), trace.end(),
                             [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; }));
}

TEST_F(PollersTest, AHandlerThatBlocksStallsItsOwnPollerOnly) {
  Start(2);
  Connect(2);
  const std::string first = Say(channels_[0]);
  while (Say(channels_.back()) == first) Connect(1);
  std::swap(channels_[1], channels_.back());
  const std::string other = Say(channels_[1]);
  std::thread blocked([this] { EXPECT_NE(Say(channels_[0], "block"), Say(channels_[1])); });
  echo_.hold.WaitUntilHolding();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Say(channels_[1]), other);
  const ServerSnapshot snapshot = server_->Snapshot(0, absl::Milliseconds(50));
  EXPECT_FALSE(snapshot.fresh);
  ASSERT_EQ(snapshot.pollers.size(), 2u);
  EXPECT_NE(snapshot.pollers[0].fresh, snapshot.pollers[1].fresh);
  echo_.hold.Release();
  blocked.join();
}

TEST_F(PollersTest, DrainEndsAllAndTellsEverybody) {
  Start(3);
  Connect(3);
  std::set<std::string> ran_on;
  for (const auto& channel : channels_) ran_on.insert(Say(channel));
  EXPECT_GE(ran_on.size(), 2u);
  EXPECT_EQ(server_->drain_phase(), call::DrainPhase::kServing);
  const absl::Status drained = server_->Drain(kLong);
  EXPECT_TRUE(drained.ok()) << drained;
  EXPECT_EQ(server_->drain_phase(), call::DrainPhase::kDrained);
  for (const auto& channel : channels_) {
    EXPECT_TRUE(channel->Drive(
        [&] { return channel->connection_state() != call::ConnectionState::kUp; }, kLong));
  }
  EXPECT_GE(server_->counters().peers_up, 3u);
}

TEST_F(PollersTest, ShutdownEndsAllAndTellsEverybody) {
  Start(3);
  Connect(3);
  for (const auto& channel : channels_) Say(channel);
  const absl::Status ended = server_->Shutdown(kLong);
  EXPECT_TRUE(ended.ok()) << ended;
  for (const auto& channel : channels_) {
    EXPECT_TRUE(channel->Drive(
        [&] { return channel->connection_state() != call::ConnectionState::kUp; }, kLong));
  }
}

TEST_F(PollersTest, ItsDestructorEndsAllThoughClientsAreThere) {
  Start(2);
  Connect(4);
  for (const auto& channel : channels_) Say(channel);
  server_.reset();
}

TEST(PollersOptionsTest, WrongNumbersAreRefused) {
  ServerOptions options;
  options.pollers = 0;
  EXPECT_EQ(options.Validate().code(), absl::StatusCode::kInvalidArgument);
  options.pollers = 65;
  EXPECT_EQ(options.Validate().code(), absl::StatusCode::kInvalidArgument);
  options.pollers = 2;
  EXPECT_TRUE(options.Validate().ok());
  testing_support::FakeNetwork network;
  auto server = Server::CreateOn(std::make_unique<testing_support::FakeStack>(
                                     &network, testing_support::FakeNetwork::Options()),
                                 options);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  options.driving = Driving::kCaller;  // one loop polls one
  EXPECT_EQ(options.Validate().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace pollers_test
}  // namespace sluice
