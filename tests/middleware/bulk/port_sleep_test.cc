// SPDX-License-Identifier: Apache-2.0
//
// Ports that sleep: whatever gives one something to do makes its descriptor readable, and nothing else does.
#include <poll.h>

#include <thread>

#include "gtest/gtest.h"
#include "tests/middleware/bulk/port_nodes.h"

namespace sluice::bulk {
namespace port_sleep_test {

using integrity::Guard;
using integrity::Protection;

constexpr int kLongMs = 60'000;
constexpr Protection kDif{
    .memory = Guard::kT10DifCrc, .wire = Guard::kT10DifCrc, .block_bytes = 4096};

struct Way {
  const char* name;
  bool offload, pipelining;
};

class PortSleepTest : public testing::TestWithParam<Way> {
 protected:
  PortSleepTest() {
    PortNodesOptions options;
    options.simulated = false;
    options.port.piece_bytes = 4096;
    options.port.offload = GetParam().offload;
    options.port.pipelining = GetParam().pipelining;
    options.port.watch_ns = 3600'000'000'000;  // nobody is woken by the watch
    nodes_ = std::make_unique<PortNodes>(options);
    joined_ = nodes_->Join(0, 1);
    own_ = nodes_->Lend(0, 0).id;
    lent_ = nodes_->Lend(1, kMayRead | kMayWrite);
  }
  Port& port(uint32_t node) { return *(*nodes_)[node].port; }
  void PutToSleep(uint32_t node) {
    while (!port(node).PrepareToSleep()) {
    }
  }
  bool Readable(uint32_t node, int limit_ms) {
    pollfd sleeper = {port(node).fd(), POLLIN, 0};
    return poll(&sleeper, 1, limit_ms) == 1;
  }
  TransferId Start(bool wrong) {
    TransferRequest request;
    request.local = own_;
    request.remote = lent_.capability;
    request.data_bytes = 16384;
    request.protection = kDif;
    request.kind = integrity::TransferKind::kWrite;
    if (!wrong) {
      PortNode& node = (*nodes_)[0];
      std::vector<std::byte> data(request.data_bytes);
      const Protection bare{.memory = Guard::kNone, .wire = kDif.wire, .block_bytes = 4096};
      integrity::Convert(bare, integrity::Direction::kToWire, data,
                         node.at(0, integrity::WireBytes(bare, request.data_bytes)));
    }
    auto transfer = nodes_->Start(0, joined_.at_one, request);
    EXPECT_TRUE(transfer.ok()) << transfer.status();
    return transfer.value_or(0);
  }
  // Both sleep whenever they can, and are woken by nothing but their descriptors.
  void SleepUntil(const std::function<bool()>& done) {
    while (!done()) {
      bool ready = true;
      for (uint32_t node : {0u, 1u}) ready = port(node).PrepareToSleep() && ready;
      if (!ready || done()) continue;
      pollfd sleepers[] = {{port(0).fd(), POLLIN, 0}, {port(1).fd(), POLLIN, 0}};
      ASSERT_GT(poll(sleepers, 2, kLongMs), 0) << "a wake-up was lost";
    }
  }

  std::unique_ptr<PortNodes> nodes_;
  PortNodes::Joined joined_;
  LeaseId own_;
  PortNodes::Lent lent_;
};

TEST_P(PortSleepTest, NothingWakesAnIdlePort) {
  for (uint32_t node : {0u, 1u}) {
    PutToSleep(node);
    EXPECT_FALSE(Readable(node, 0));
    EXPECT_EQ(port(node).SleepLimitNs(), -1);
  }
}

TEST_P(PortSleepTest, WakeIsSeenFromAnotherThread) {
  PutToSleep(0);
  std::thread other([this] { port(0).Wake(); });
  EXPECT_TRUE(Readable(0, kLongMs));
  other.join();
  PutToSleep(0);
  EXPECT_FALSE(Readable(0, 0));
}

TEST_P(PortSleepTest, BothSleepThroughATransfer) {
  for (int i = 0; i < 20; ++i) {
    const bool wrong = i % 3 == 2;
    if (wrong) (*nodes_)[0].memory[100] ^= std::byte{1};
    const TransferId transfer = Start(wrong);
    SleepUntil([&] {
      return (*nodes_)[0].ended.contains(transfer) &&
             (*nodes_)[1].arrivals.size() == static_cast<size_t>(i) + 1;
    });
    EXPECT_EQ((*nodes_)[0].ended[transfer].ok(), !wrong);
    EXPECT_EQ((*nodes_)[1].arrivals.back().status.ok(), !wrong);
  }
}

// Begun between two sleeps, without a pass of its own.
TEST_P(PortSleepTest, BothSleepThroughAPlainTransfer) {
  for (int i = 0; i < 20; ++i) {
    TransferRequest request;
    request.local = own_;
    request.remote = lent_.capability;
    request.data_bytes = 16384;
    const auto transfer = nodes_->Start(0, joined_.at_one, request);
    ASSERT_TRUE(transfer.ok()) << transfer.status();
    SleepUntil([&] {
      return (*nodes_)[0].ended.contains(*transfer) &&
             (*nodes_)[1].arrivals.size() == static_cast<size_t>(i) + 1;
    });
    EXPECT_TRUE((*nodes_)[0].ended[*transfer].ok());
  }
}

TEST_P(PortSleepTest, LeasesAndDeadlinesBoundTheSleep) {
  const int64_t end_ns = (*nodes_)[1].clock->NowNs() + 3600'000'000'000;
  nodes_->Lend(1, kMayRead, 0, 4096, end_ns);
  PutToSleep(1);
  EXPECT_GT(port(1).SleepLimitNs(), 0);
  EXPECT_LE(port(1).SleepLimitNs(), 3600'000'000'000);
}

// What is under way to it may take as long as a dead peer; its transfer's deadline passes meanwhile.
TEST(PortSleep, PeerThatIsGivenUp_DoesNotKeepThePortAwake) {
  PortNodesOptions options;
  options.port.dead_peer_ns = 100'000'000;
  PortNodes nodes(options);
  const auto joined = nodes.Join(0, 1);
  TransferRequest request;
  request.local = nodes.Lend(0, 0).id;
  request.remote = nodes.Lend(1, kMayRead | kMayWrite).capability;
  request.data_bytes = 16384;
  request.deadline_ns = nodes.simulation->NowNs() + 1'000'000;
  ASSERT_TRUE(nodes.Start(0, joined.at_one, request).ok());
  nodes.simulation->Kill(1);
  nodes.dead = {false, true};
  nodes.Pass();
  {
    const auto as = nodes.As(0);
    ASSERT_TRUE(nodes[0].port->Disconnect(joined.at_one).ok());
  }
  ASSERT_TRUE(nodes.Run([&] { return nodes.simulation->NowNs() > request.deadline_ns; }));
  EXPECT_TRUE(nodes[0].downs.empty()) << "nothing is under way any more";
  EXPECT_NE(nodes[0].port->SleepLimitNs(), 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, PortSleepTest,
                         testing::Values(Way{"Pipelined", true, true}, Way{"Serial", true, false},
                                         Way{"Software", false, false}),
                         [](const auto& info) { return info.param.name; });

}  // namespace port_sleep_test
}  // namespace sluice::bulk
