// SPDX-License-Identifier: Apache-2.0
//
// Send buffers among peers that want them at the same time. In virtual time.
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/sim_endpoint.h"

namespace sluice::endpoint {
namespace {

using softdc::sim::Simulation;

// Sends to each peer as much as it may, whenever it may; and to `greedy` also when an acknowledgement gives buffers back.
struct Sender final : Handler {
  struct Peer {
    std::deque<uint32_t> kept;
    uint32_t acknowledged = 0;
  };

  void OnPeerUp(PeerId peer, const PeerInfo&) override { ups.push_back(peer); }
  void OnPeerDown(PeerId, const absl::Status& why) override {
    EXPECT_EQ(why.code(), absl::StatusCode::kCancelled) << why;
  }
  bool OnMessage(PeerId, std::span<const std::byte>) override { return true; }
  void OnAcknowledged(PeerId id, uint32_t total) override {
    Peer& peer = peers[id.index];
    for (; peer.acknowledged != total; ++peer.acknowledged) {
      endpoint->Release(peer.kept.front());
      peer.kept.pop_front();
    }
    if (id == greedy) Fill(id);
  }
  bool OnResend(PeerId id) override {
    for (const uint32_t slot : peers[id.index].kept) endpoint->Repost(id, slot);
    return true;
  }
  void OnWritable(PeerId id) override { Fill(id); }

  void Fill(PeerId id) {
    for (;;) {
      const auto buffer = endpoint->Reserve(id, 8);
      if (!buffer.ok()) return;
      std::memset(buffer->data, 0, 8);
      peers[id.index].kept.push_back(buffer->slot);
      endpoint->Commit(id, *buffer, 8, /*report_soon=*/true);
    }
  }

  Endpoint* endpoint = nullptr;
  std::vector<PeerId> ups;
  std::map<uint32_t, Peer> peers;
  PeerId greedy;
};

// The peers' credits are more than there are buffers.
TEST(Reserve, BuffersThatComeBackGoToThoseWhoWait) {
  softdc::sim::Options sim_options;
  sim_options.nodes = 5;
  auto simulation = Simulation::Create(sim_options).value();
  Options options = SimEndpointOptions();
  options.srq_size = 1024;
  options.credits_per_peer = 128;
  options.max_message_bytes = 64;
  Sender sender;
  std::vector<std::unique_ptr<SimEndpoint>> receivers;
  for (uint32_t node = 1; node < 5; ++node) {
    receivers.push_back(std::make_unique<SimEndpoint>(*simulation, node, 1, options));
    receivers.back()->Listen();
  }
  options.send_buffers = 64;
  SimEndpoint host(*simulation, 0, 1, options, &sender);
  sender.endpoint = &host.endpoint();
  const auto run = [&](const std::function<bool()>& done, int64_t limit_ns) {
    return RunUntil(
        *simulation,
        {&host, receivers[0].get(), receivers[1].get(), receivers[2].get(), receivers[3].get()},
        done, limit_ns);
  };
  for (uint32_t node = 1; node < 5; ++node) {
    ASSERT_TRUE(host.Connect(node).ok());
    ASSERT_TRUE(run([&] { return sender.ups.size() == node; }, 5'000'000'000));
  }
  sender.greedy = sender.ups[0];
  {
    const Simulation::As as(*simulation, 0);
    for (const PeerId peer : sender.ups) sender.Fill(peer);
  }
  ASSERT_TRUE(sender.peers[sender.ups[1].index].kept.empty()) << "the first has them all";
  const auto count = [&](int i) { return receivers[i]->recorder.messages.size(); };
  ASSERT_TRUE(run([&] { return count(0) >= 1'000; }, 60'000'000'000));
  for (int i = 1; i < 4; ++i) {
    EXPECT_GE(count(i), count(0) / 3) << i;
    EXPECT_LE(count(i), count(0) * 3) << i;
  }
  // Goodbyes would be waited for in real time.
  {
    const Simulation::As as(*simulation, 0);
    for (const PeerId peer : sender.ups) host.endpoint().Disconnect(peer);
  }
  run([] { return false; }, 1'000'000'000);
}

}  // namespace
}  // namespace sluice::endpoint
