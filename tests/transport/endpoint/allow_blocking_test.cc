// SPDX-License-Identifier: Apache-2.0
//
// When Poll() runs calls that block by itself: after AllowBlocking(), while one peer begins and there is no other.
#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"

namespace sluice::endpoint {
namespace {

// Notes where the endpoint lets its work run.
class NotingCommands final : public poller::Commands {
 public:
  void Submit(Work work, Work done) override { inner_.Submit(std::move(work), std::move(done)); }
  void RunInDrain(bool in_drain) override {
    if (places.empty() || places.back() != in_drain) places.push_back(in_drain);
  }
  int Drain() override { return inner_.Drain(); }
  void Finish() override { inner_.Finish(); }
  int fd() const override { return inner_.fd(); }

  std::vector<bool> places;  // changes only

 private:
  poller::InlineCommands inner_;
};

class AllowBlockingTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = CreateEndpoint({}, *client_.device, client_.clock, random_, noting_, &recorder_);
    ASSERT_TRUE(made.ok()) << made.status();
    endpoint_ = *std::move(made);
    for (uint16_t& port : ports_) port = *server_.endpoint->Listen("127.0.0.1", 0);
  }
  void PollBothUntil(const std::function<bool()>& done) {
    while (!done()) {
      endpoint_->Poll();
      server_.endpoint->Poll();
    }
  }
  PeerId Connect(uint16_t port) {
    const size_t ups = recorder_.ups.size();
    const auto peer = endpoint_->Connect("127.0.0.1", port, INT64_MAX);
    EXPECT_TRUE(peer.ok()) << peer.status();
    PollBothUntil([&] { return recorder_.ups.size() > ups; });
    return *peer;
  }
  void Disconnect(PeerId peer) {
    const size_t downs = recorder_.downs.size();
    endpoint_->Disconnect(peer);
    PollBothUntil([&] { return recorder_.downs.size() > downs; });
  }

  Node server_, client_;  // of the client, the device alone
  base::SystemRandom random_;
  NotingCommands noting_;
  Recorder recorder_;
  std::unique_ptr<Endpoint> endpoint_;
  uint16_t ports_[2] = {};
};

TEST_F(AllowBlockingTest, PollBlocksWhileOnePeerBeginsAndThereIsNoOther) {
  endpoint_->AllowBlocking();
  EXPECT_TRUE(noting_.places.empty());
  const PeerId first = Connect(ports_[0]);
  EXPECT_EQ(noting_.places, (std::vector<bool>{true, false}));
  const PeerId second = Connect(ports_[1]);
  Disconnect(first);
  Disconnect(second);
  EXPECT_EQ(noting_.places, (std::vector<bool>{true, false})) << "ends run on the helper";
  while (endpoint_->Poll() != 0 || server_.endpoint->Poll() != 0) {
  }
  Connect(ports_[0]);
  EXPECT_EQ(noting_.places, (std::vector<bool>{true, false, true, false}));
  endpoint_->Close();
  EXPECT_EQ(noting_.places, (std::vector<bool>{true, false, true, false, true, false}));
}

TEST_F(AllowBlockingTest, TheSecondOfTwoThatBeginSendsTheirWorkToTheHelper) {
  endpoint_->AllowBlocking();
  for (const uint16_t port : ports_) {
    ASSERT_TRUE(endpoint_->Connect("127.0.0.1", port, INT64_MAX).ok());
  }
  EXPECT_EQ(noting_.places, (std::vector<bool>{true, false}));
  PollBothUntil([&] { return recorder_.ups.size() == 2; });
  EXPECT_EQ(noting_.places, (std::vector<bool>{true, false}));
}

TEST_F(AllowBlockingTest, AConnectThatFailsIsOver) {
  endpoint_->AllowBlocking();
  const auto peer = endpoint_->Connect("127.0.0.1", 1, INT64_MAX);
  ASSERT_TRUE(peer.ok());
  PollBothUntil([&] { return !recorder_.downs.empty(); });
  PollBothUntil([&] { return !noting_.places.back(); });
  EXPECT_EQ(noting_.places, (std::vector<bool>{true, false}));
}

// ThreadCommands that counts work.
class CountingCommands final : public poller::Commands {
 public:
  void Submit(Work work, Work done) override {
    ++submitted;
    inner_.Submit(
        [this, work = std::move(work)]() mutable {
          work();
          ++ran;
        },
        std::move(done));
  }
  void SubmitSlow(Work work, Work done, poller::Slow kind) override {
    inner_.SubmitSlow(std::move(work), std::move(done), kind);
  }
  void RunInDrain(bool in_drain) override { inner_.RunInDrain(in_drain); }
  int Drain() override { return inner_.Drain(); }
  void Finish() override { inner_.Finish(); }
  int fd() const override { return inner_.fd(); }

  std::atomic<int> submitted = 0, ran = 0;

 private:
  poller::ThreadCommands inner_;
};

// Nobody polls an endpoint that is closed, and it may stay for long: the other side waits for what it has to say.
TEST_F(AllowBlockingTest, NoWorkWaitsForTheEndOfAClosedEndpoint) {
  Recorder recorder;
  CountingCommands commands;
  auto made = CreateEndpoint({}, *client_.device, client_.clock, random_, commands, &recorder);
  ASSERT_TRUE(made.ok()) << made.status();
  const auto endpoint = *std::move(made);
  endpoint->AllowBlocking();
  ASSERT_TRUE(endpoint->Connect("127.0.0.1", ports_[0], INT64_MAX).ok());
  while (recorder.ups.empty()) {
    endpoint->Poll();
    server_.endpoint->Poll();
  }
  const int before = commands.submitted;
  endpoint->Close();
  EXPECT_GT(commands.submitted, before);
  while (commands.ran != commands.submitted) {
    server_.endpoint->Poll();
  }
}

TEST_F(AllowBlockingTest, WithoutLeavePollNeverBlocks) {
  Disconnect(Connect(ports_[0]));
  for (const bool in_drain : noting_.places) EXPECT_FALSE(in_drain);
}

}  // namespace
}  // namespace sluice::endpoint
