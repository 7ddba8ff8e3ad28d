// SPDX-License-Identifier: Apache-2.0
//
// Sessions over endpoints on the simulated fabric, whose requests fail: in order, once, all of them.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "middleware/session/sessions.h"
#include "tests/transport/endpoint/sim_endpoint.h"
#include "transport/softdc/config/config.h"
#include "transport/softdc/config/personalities/personalities.h"

namespace sluice::session {
namespace delivery_test {

using endpoint::PeerId;
using endpoint::SimEndpoint;
using softdc::sim::Simulation;

// One host with a session user that sends numbers, and checks those that come from each peer.
class Host final : public User {
 public:
  Host(Simulation& simulation, uint32_t node, const endpoint::Options& options)
      : simulation_(simulation),
        node_(node),
        end_(simulation, node, /*seed=*/1, options, &sessions_) {
    sessions_.Attach(&end_.endpoint());
  }
  void OnPeerUp(PeerId id, const endpoint::PeerInfo&) override { ups.push_back(id); }
  void OnPeerDown(PeerId, const absl::Status& why) override { downs.push_back(why); }
  void OnMessage(PeerId id, const frame::Header&, std::span<const std::byte> bytes) override {
    uint32_t number;
    std::memcpy(&number, bytes.data(), sizeof(number));
    if (received.size() <= id.index) received.resize(id.index + 1);
    EXPECT_EQ(number, received[id.index]) << "lost, repeated or out of order";
    ++received[id.index];
  }
  void OnWritable(PeerId) override {}
  void OnDelivered(PeerId, uint32_t sequence) override { delivered = sequence; }
  void OnProtocolError(PeerId, std::string_view what, std::string_view why) override {
    ADD_FAILURE() << what << ": " << why;
  }
  // As many as find credit, up to `end`.
  void Send(PeerId peer, uint32_t* next, uint32_t end) {
    const Simulation::As as(simulation_, node_);
    for (; *next < end; ++*next) {
      auto buffer = sessions_.Reserve(peer, sizeof(*next));
      if (!buffer.ok()) break;
      std::memcpy(buffer->data, next, sizeof(*next));
      frame::Header header;
      header.method_id = 1;
      header.payload_bytes = sizeof(*next);
      sessions_.Commit(peer, *buffer, header, *next + 1 == end);
    }
    end_.endpoint().Flush();
  }
  absl::StatusOr<endpoint::SendBuffer> Lend(PeerId peer, uint32_t bytes) {
    const Simulation::As as(simulation_, node_);
    return sessions_.Lend(peer, bytes, /*waits=*/false);
  }
  void Cancel(PeerId peer, const endpoint::SendBuffer& buffer) {
    const Simulation::As as(simulation_, node_);
    sessions_.Cancel(peer, buffer);
  }
  SimEndpoint& end() { return end_; }
  endpoint::Counters counts() { return end_.endpoint().Counts(); }
  const SessionCounters& counters() const { return sessions_.counters(); }

  std::vector<PeerId> ups;
  std::vector<absl::Status> downs;
  std::vector<uint32_t> received;
  uint32_t delivered = 0;

 private:
  Simulation& simulation_;
  const uint32_t node_;
  Sessions sessions_{this};
  SimEndpoint end_;
};

class DeliveryTest : public testing::Test {
 protected:
  void Start(softdc::sim::Options sim = {}, uint32_t hosts = 2) {
    sim.nodes = hosts;
    simulation_ = std::move(*Simulation::Create(sim));
    for (uint32_t i = 0; i < hosts; ++i) {
      hosts_.push_back(std::make_unique<Host>(*simulation_, i, options_));
    }
    for (uint32_t i = 1; i < hosts; ++i) hosts_[i]->end().Listen();
    for (uint32_t i = 1; i < hosts; ++i) {
      ASSERT_TRUE(hosts_[0]->end().Connect(i).ok());
      ASSERT_TRUE(RunUntil([&] { return hosts_[0]->ups.size() == i; }));
    }
  }
  void TearDown() override {
    for (auto& host : hosts_) {
      for (const PeerId id : host->ups) host->end().endpoint().Disconnect(id);
    }
  }
  bool RunUntil(const std::function<bool()>& done, int64_t limit_ns = 60'000'000'000) {
    const int64_t end_ns = simulation_->NowNs() + limit_ns;
    for (;;) {
      for (auto& host : hosts_) host->end().Poll();
      if (done()) return true;
      if (simulation_->NowNs() >= end_ns || !simulation_->Step()) return false;
    }
  }
  // Host 0 sends so many to each other host, and hears that they were delivered.
  void SendToAll(uint32_t count) {
    std::vector<uint32_t> next(hosts_.size(), 0);
    const bool all = RunUntil([&] {
      bool done = true;
      for (size_t i = 1; i < hosts_.size(); ++i) {
        hosts_[0]->Send(hosts_[0]->ups[i - 1], &next[i], count);
        done = done && !hosts_[i]->received.empty() && hosts_[i]->received[0] == count;
      }
      return done;
    });
    EXPECT_TRUE(all) << "it does not end";
    EXPECT_TRUE(RunUntil([&] { return hosts_[0]->delivered == count; }));
  }

  endpoint::Options options_ = endpoint::SimEndpointOptions();
  std::unique_ptr<Simulation> simulation_;
  std::vector<std::unique_ptr<Host>> hosts_;
};

TEST_F(DeliveryTest, FailedRequestIsSentAgainAfterOneFlushAndOneReset) {
  Start();
  simulation_->FailNext({.node = 0, .skip = 5, .status = IBV_WC_RETRY_EXC_ERR});
  SendToAll(200);
  const endpoint::Counters counts = hosts_[0]->counts();
  EXPECT_EQ(counts.requests_failed, 1u);
  EXPECT_EQ(counts.stream_resets, 1u);
  EXPECT_EQ(counts.queue_recoveries, 0u);
  EXPECT_GT(hosts_[0]->counters().sent_again, 0u);
  EXPECT_TRUE(hosts_[0]->downs.empty());
}

// The endpoint gives the number of what was lent to a peer that has gone to another.
TEST_F(DeliveryTest, BufferOfAPeerThatWentIsNotCancelledForAnother) {
  options_.max_large_bytes = 1 << 20;
  options_.large_memory_bytes = 8 << 20;
  Start({}, 3);
  Host& host = *hosts_[0];
  const auto first = host.Lend(host.ups[0], 100'000);
  ASSERT_TRUE(first.ok()) << first.status();
  {
    const Simulation::As as(*simulation_, 0);
    host.end().endpoint().Disconnect(host.ups[0]);
  }
  ASSERT_TRUE(RunUntil([&] { return host.downs.size() == 1; }));
  EXPECT_EQ(host.counters().lent, 0u);
  bool later = false;
  simulation_->After(50'000'000, [&later] { later = true; });
  ASSERT_TRUE(RunUntil([&] { return later; }));
  const auto second = host.Lend(host.ups[1], 100'000);
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_EQ(second->large, first->large);
  host.Cancel(host.ups[0], *first);
  EXPECT_EQ(host.counters().lent, 1u);
  host.Cancel(host.ups[1], *second);
  EXPECT_EQ(host.counters().lent, 0u);
}

// Fewer than half of the window, on probation in twos: each report speaks of some of them only.
TEST_F(DeliveryTest, LastMessagesAreAcknowledgedAfterAnError) {
  Start();
  simulation_->FailNext({.node = 0, .status = IBV_WC_RETRY_EXC_ERR});
  SendToAll(3);
  EXPECT_EQ(hosts_[0]->counts().requests_failed, 1u);
}

TEST_F(DeliveryTest, EveryTenthRequestFails) {
  Start();
  for (uint32_t i = 0; i < 100; ++i) {
    simulation_->FailNext({.node = 0, .skip = i * 10, .status = IBV_WC_REM_OP_ERR});
  }
  SendToAll(2000);
  EXPECT_GT(hosts_[0]->counts().stream_resets, 10u);
  EXPECT_TRUE(hosts_[0]->downs.empty());
}

TEST_F(DeliveryTest, LostAnswersMakeDuplicatesWhichAreDropped) {
  softdc::sim::Options sim;
  Start(sim);
  // Carried out, and nobody hears of it.
  simulation_->message_faults().ack_loss_ppm = 300'000;
  SendToAll(500);
  EXPECT_TRUE(hosts_[0]->downs.empty());
}

TEST_F(DeliveryTest, HealthyNeighboursLoseNothing) {
  Start({}, 4);
  simulation_->FailNext({.node = 0, .peer = 2, .skip = 20, .status = IBV_WC_RETRY_EXC_ERR});
  SendToAll(500);
  EXPECT_EQ(hosts_[0]->counts().stream_resets, 1u);
  EXPECT_EQ(hosts_[0]->counts().requests_failed, 1u);
}

TEST_F(DeliveryTest, WithoutStreamsTheQueueIsRecovered) {
  softdc::sim::Options sim;
  sim.dials.streams.enabled = false;
  Start(sim, 4);
  simulation_->FailNext({.node = 0, .peer = 2, .skip = 20, .status = IBV_WC_RETRY_EXC_ERR});
  SendToAll(500);
  EXPECT_EQ(hosts_[0]->counts().stream_resets, 0u);
  EXPECT_EQ(hosts_[0]->counts().queue_recoveries, 1u);
  EXPECT_TRUE(hosts_[0]->downs.empty());
}

TEST_F(DeliveryTest, WithoutABudgetOfErroredStreamsTheQueueIsRecovered) {
  softdc::sim::Options sim;
  sim.dials.streams.max_log_errored = 0;
  Start(sim, 4);
  simulation_->FailNext({.node = 0, .peer = 2, .skip = 20, .status = IBV_WC_RETRY_EXC_ERR});
  SendToAll(500);
  EXPECT_EQ(hosts_[0]->counts().stream_resets, 0u);
  EXPECT_EQ(hosts_[0]->counts().queue_recoveries, 1u);
  EXPECT_TRUE(hosts_[0]->downs.empty());
}

TEST_F(DeliveryTest, PeerThatDoesNotAnswerGoesDownWithAnError) {
  Start();
  uint32_t next = 0;
  simulation_->CutLink(0, 1);
  ASSERT_TRUE(RunUntil([&] {
    hosts_[0]->Send(hosts_[0]->ups[0], &next, 10);
    return !hosts_[0]->downs.empty();
  }));
  EXPECT_TRUE(absl::IsUnavailable(hosts_[0]->downs[0])) << hosts_[0]->downs[0];
  EXPECT_EQ(hosts_[0]->counts().requests_failed, 3u);
  simulation_->HealLink(0, 1);
}

TEST_F(DeliveryTest, ShortInterruptionIsSurvived) {
  Start();
  uint32_t next = 0;
  simulation_->CutLink(0, 1);
  ASSERT_TRUE(RunUntil([&] {
    hosts_[0]->Send(hosts_[0]->ups[0], &next, 3);
    return hosts_[0]->counts().requests_failed == 1;
  }));
  simulation_->HealLink(0, 1);
  ASSERT_TRUE(RunUntil([&] {
    hosts_[0]->Send(hosts_[0]->ups[0], &next, 100);
    return hosts_[0]->delivered == 100;
  })) << next
      << " " << hosts_[0]->delivered << " " << hosts_[0]->counts().requests_failed << " "
      << hosts_[0]->counts().stream_resets << " " << hosts_[0]->downs.size() << " "
      << simulation_->NowNs() << (hosts_[0]->downs.empty() ? absl::OkStatus() : hosts_[0]->downs[0])
      << hosts_[1]->downs.size();
  EXPECT_EQ(hosts_[1]->received[0], 100u);
  EXPECT_TRUE(hosts_[0]->downs.empty());
}

// Devices as they may be.
class FirmwareTest : public DeliveryTest, public testing::WithParamInterface<softdc::Personality> {
 protected:
  void StartFirmware(uint32_t hosts) {
    softdc::sim::Options sim;
    const auto dials = softdc::ParseDials(GetParam().dials);
    ASSERT_TRUE(dials.ok()) << dials.status();
    sim.dials = *dials;
    Start(sim, hosts);
  }
};
INSTANTIATE_TEST_SUITE_P(All, FirmwareTest, testing::ValuesIn(softdc::Personalities()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(FirmwareTest, DeadPeerIsFoundAndTheOthersLoseNothing) {
  constexpr uint32_t kCount = 300;
  StartFirmware(4);
  // With an RC queue pair for each peer it would be the end of that one.
  if (softdc::ParseDials(GetParam().dials)->features.dc) {
    simulation_->FailNext({.node = 0, .peer = 2, .skip = 20, .status = IBV_WC_RNR_RETRY_EXC_ERR});
  }
  simulation_->Kill(3);
  uint32_t next[4] = {};
  ASSERT_TRUE(RunUntil([&] {
    for (uint32_t i = 1; i < 4; ++i) hosts_[0]->Send(hosts_[0]->ups[i - 1], &next[i], kCount);
    const auto has_all = [&](uint32_t i) {
      return !hosts_[i]->received.empty() && hosts_[i]->received[0] == kCount;
    };
    return !hosts_[0]->downs.empty() && has_all(1) && has_all(2);
  })) << hosts_[0]->downs.size();
  EXPECT_EQ(hosts_[0]->downs.size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(hosts_[0]->downs[0])) << hosts_[0]->downs[0];
}

}  // namespace delivery_test
}  // namespace sluice::session
