// SPDX-License-Identifier: Apache-2.0
//
// When Poll() runs calls that block by itself: after AllowBlocking(), while a peer begins and none is up.
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

TEST_F(AllowBlockingTest, PollBlocksWhileAPeerBeginsAndNoneIsUp) {
  endpoint_->AllowBlocking();
  EXPECT_EQ(noting_.places, (std::vector<bool>{false}));
  const PeerId first = Connect(ports_[0]);
  EXPECT_EQ(noting_.places, (std::vector<bool>{false, true, false}));
  const PeerId second = Connect(ports_[1]);
  Disconnect(first);
  Disconnect(second);
  EXPECT_EQ(noting_.places, (std::vector<bool>{false, true, false})) << "ends run on the helper";
  while (endpoint_->Poll() != 0 || server_.endpoint->Poll() != 0) {
  }
  Connect(ports_[0]);
  EXPECT_EQ(noting_.places, (std::vector<bool>{false, true, false, true, false}));
  endpoint_->Close();
  EXPECT_EQ(noting_.places, (std::vector<bool>{false, true, false, true, false, true}));
}

TEST_F(AllowBlockingTest, AConnectThatFailsIsOver) {
  endpoint_->AllowBlocking();
  const auto peer = endpoint_->Connect("127.0.0.1", 1, INT64_MAX);
  ASSERT_TRUE(peer.ok());
  PollBothUntil([&] { return !recorder_.downs.empty(); });
  PollBothUntil([&] { return !noting_.places.back(); });
  EXPECT_EQ(noting_.places, (std::vector<bool>{false, true, false}));
}

TEST_F(AllowBlockingTest, WithoutLeavePollNeverBlocks) {
  Disconnect(Connect(ports_[0]));
  for (const bool in_drain : noting_.places) EXPECT_FALSE(in_drain);
}

}  // namespace
}  // namespace sluice::endpoint
