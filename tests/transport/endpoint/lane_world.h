// SPDX-License-Identifier: Apache-2.0
//
// LaneWorld: endpoints on simulated hosts that poll as programs do, awake or asleep, and programs that count and check every
// message they send each other.
//
//   awake: looks after each step of the simulation   asleep: until its descriptor is readable, or the sleep's limit
#ifndef SLUICE_TESTS_TRANSPORT_ENDPOINT_LANE_WORLD_H_
#define SLUICE_TESTS_TRANSPORT_ENDPOINT_LANE_WORLD_H_

#include <poll.h>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/cm/sim_commands.h"
#include "tests/transport/endpoint/sim_endpoint.h"
#include "transport/base/random.h"
#include "transport/device/device.h"
#include "transport/endpoint/create.h"
#include "transport/softdc/sim/activity.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::endpoint {

inline Options LaneOptions() {
  Options options;
  options.max_message_bytes = 1024;
  options.srq_size = 256;
  options.credits_per_peer = 16;
  options.send_buffers = 128;
  options.max_peers = 16;
  options.dci_depth = 64;
  options.dead_peer_ns = 100'000'000;
  options.lane_after_messages = 4;
  return options;
}

// What a session does: keeps what is not acknowledged, sends it again, drops what came before. And checks each byte.
class Program final : public Handler {
 public:
  struct Peer {
    PeerId id;
    bool up = false;
    uint32_t sent = 0;
    uint32_t acknowledged = 0;
    uint32_t expected = 0;
    std::deque<uint32_t> kept;
    absl::Status down;
  };

  static constexpr uint32_t kLeastBytes = 8;

  Peer& Of(PeerId id) {
    if (id.index >= peers.size()) peers.resize(id.index + 1);
    if (!(peers[id.index].id == id)) {
      peers[id.index] = {};
      peers[id.index].id = id;
    }
    return peers[id.index];
  }
  // False: not now.
  bool Send(PeerId id, uint32_t size_bytes) {
    Peer& peer = Of(id);
    auto buffer = endpoint->Reserve(id, size_bytes);
    if (!buffer.ok()) return false;
    Fill(buffer->data, size_bytes, peer.sent);
    peer.kept.push_back(buffer->slot);
    ++peer.sent;
    endpoint->Commit(id, *buffer, size_bytes, false);
    return true;
  }
  static std::byte ByteOf(uint32_t number, uint32_t at) {
    return static_cast<std::byte>((number * 0x9e3779b9u + at / 8 * 0x85ebca6bu) >> 24);
  }
  static void Fill(std::byte* to, uint32_t size_bytes, uint32_t number) {
    std::memcpy(to, &number, 4);
    std::memcpy(to + 4, &size_bytes, 4);
    for (uint32_t at = 8; at < size_bytes; ++at) to[at] = ByteOf(number, at);
  }

  void OnPeerUp(PeerId id, const PeerInfo&) override {
    Of(id).up = true;
    ups.push_back(id);
  }
  void OnPeerDown(PeerId id, const absl::Status& why) override {
    Peer& peer = Of(id);
    peer.up = false;
    peer.down = why;
    for (const uint32_t slot : peer.kept) endpoint->Release(slot);
    peer.kept.clear();
    ++downs;
  }
  bool OnMessage(PeerId id, std::span<const std::byte> bytes) override {
    Peer& peer = Of(id);
    uint32_t number = 0;
    uint32_t size_bytes = 0;
    if (bytes.size() >= kLeastBytes) {
      std::memcpy(&number, bytes.data(), 4);
      std::memcpy(&size_bytes, bytes.data() + 4, 4);
    }
    bool whole = size_bytes == bytes.size();
    for (uint32_t at = 8; whole && at < size_bytes; ++at) whole = bytes[at] == ByteOf(number, at);
    if (!whole) {
      ++torn;
      ++peer.expected;
      return true;
    }
    if (static_cast<int32_t>(number - peer.expected) < 0) {
      ++doubles;
      return false;
    }
    if (number != peer.expected) ++gaps;
    peer.expected = number + 1;
    ++received;
    if (on_message) on_message(id);
    return true;
  }
  void OnAcknowledged(PeerId id, uint32_t total) override {
    Peer& peer = Of(id);
    if (!peer.up) ++late_acknowledgements;
    for (; peer.acknowledged != total && !peer.kept.empty(); ++peer.acknowledged) {
      endpoint->Release(peer.kept.front());
      peer.kept.pop_front();
    }
  }
  bool OnResend(PeerId id) override {
    for (const uint32_t slot : Of(id).kept) endpoint->Repost(id, slot);
    return true;
  }
  void OnWritable(PeerId) override {}

  Endpoint* endpoint = nullptr;
  std::vector<Peer> peers;  // by PeerId::index
  std::vector<PeerId> ups;
  std::function<void(PeerId)> on_message;
  uint64_t received = 0;
  uint64_t torn = 0;
  uint64_t gaps = 0;
  uint64_t doubles = 0;
  uint64_t downs = 0;
  uint64_t late_acknowledgements = 0;  // after OnPeerDown()
};

class LaneHost {
 public:
  static constexpr uint16_t kPort = 7471;

  LaneHost(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed,
           const Options& options, const verbs::VerbsApi& table)
      : simulation_(simulation),
        node_(node),
        clock_(simulation),
        random_(seed * 1000 + node),
        commands_(simulation, node, random_) {
    const softdc::sim::Simulation::As as(simulation, node);
    auto opened = device::Device::Open("softdc0", {&table});
    EXPECT_TRUE(opened.ok()) << opened.status();
    device_ = std::move(*opened);
    auto created = CreateEndpoint(options, *device_, clock_, random_, commands_, &program);
    EXPECT_TRUE(created.ok()) << created.status();
    endpoint_ = std::move(*created);
    program.endpoint = endpoint_.get();
  }
  // Goodbyes would be waited for in real time.
  ~LaneHost() {
    const softdc::sim::Simulation::As as(simulation_, node_);
    for (const PeerId id : program.ups) endpoint_->Disconnect(id);
    const int64_t end_ns = simulation_.NowNs() + 1'000'000'000;
    endpoint_->Poll();
    while (simulation_.NowNs() < end_ns && simulation_.Step()) {
      endpoint_->PrepareToSleep();
      endpoint_->Poll();
    }
    endpoint_.reset();
    device_.reset();
  }

  // One pass; a thing of the program's own is done in it.
  int Look(bool thorough = false) {
    if (hung) return 0;
    const softdc::sim::Simulation::As as(simulation_, node_);
    if (on_look) on_look();
    if (thorough) endpoint_->PrepareToSleep();  // descriptors as well
    return endpoint_->Poll();
  }
  // As a program that has spun long enough. True: it sleeps.
  bool Sleep() {
    const softdc::sim::Simulation::As as(simulation_, node_);
    if (!endpoint_->PrepareToSleep()) return false;
    const int64_t limit_ns = endpoint_->SleepLimitNs();
    sleep_limit_ns = limit_ns;
    wake_ns_ = limit_ns < 0 ? INT64_MAX : simulation_.NowNs() + limit_ns;
    if (limit_ns >= 0) simulation_.After(std::max<int64_t>(limit_ns, 1), [] {});
    asleep_ = true;
    return true;
  }
  void LetTimePass() {
    const int64_t limit_ns = endpoint_->SleepLimitNs();
    if (!asleep_ && limit_ns >= 0) simulation_.After(std::max<int64_t>(limit_ns, 1), [] {});
  }
  void WakeUp() { asleep_ = false; }
  bool asleep() {
    if (!asleep_) return false;
    pollfd fd{endpoint_->fd(), POLLIN, 0};
    asleep_ = simulation_.NowNs() < wake_ns_ && ::poll(&fd, 1, 0) == 0;
    return asleep_;
  }

  uint16_t Listen() {
    const softdc::sim::Simulation::As as(simulation_, node_);
    const auto port = endpoint_->Listen("*", kPort);
    EXPECT_TRUE(port.ok()) << port.status();
    return kPort;
  }
  PeerId Connect(uint32_t to) {
    const softdc::sim::Simulation::As as(simulation_, node_);
    const auto id =
        endpoint_->Connect(SimEndpoint::AddressOf(to), kPort, simulation_.NowNs() + 5'000'000'000);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.ok() ? *id : PeerId{};
  }
  bool Send(PeerId peer, uint32_t size_bytes) {
    const softdc::sim::Simulation::As as(simulation_, node_);
    const bool sent = program.Send(peer, size_bytes);
    endpoint_->Flush();
    return sent;
  }
  void Disconnect(PeerId peer) {
    const softdc::sim::Simulation::As as(simulation_, node_);
    endpoint_->Disconnect(peer);
  }
  Counters Counts() { return endpoint_->Counts(); }
  Endpoint& endpoint() { return *endpoint_; }
  device::Device& device() { return *device_; }

  Program program;
  std::function<void()> on_look;
  int64_t sleep_limit_ns = 0;
  bool hung = false;  // it does not look at anything

 private:
  softdc::sim::Simulation& simulation_;
  const uint32_t node_;
  cm::SimClock clock_;
  base::SeededRandom random_;
  cm::SimCommands commands_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<Endpoint> endpoint_;
  int64_t wake_ns_ = 0;
  bool asleep_ = false;
};

// Host 0 listens.
class LaneWorld {
 public:
  explicit LaneWorld(softdc::sim::Options sim_options = {}, Options options = LaneOptions(),
                     const verbs::VerbsApi& table = softdc::sim::Simulation::Verbs()) {
    auto made = softdc::sim::Simulation::Create(sim_options);
    EXPECT_TRUE(made.ok()) << made.status();
    simulation = std::move(*made);
    for (uint32_t node = 0; node < sim_options.nodes; ++node) {
      hosts.push_back(
          std::make_unique<LaneHost>(*simulation, node, sim_options.seed, options, table));
    }
    hosts[0]->Listen();
  }

  // Everybody awake looks after each step, until `done`. False: it never is.
  bool RunUntil(const std::function<bool()>& done, int64_t limit_ns = 60'000'000'000,
                bool thorough = false) {
    const int64_t end_ns = simulation->NowNs() + limit_ns;
    int still = 0;
    for (;;) {
      bool busy = false;
      for (auto& host : hosts) {
        if (!host->asleep()) busy = host->Look(thorough || still != 0) != 0 || busy;
      }
      if (done()) return true;
      if (simulation->NowNs() >= end_ns) return false;
      still = simulation->Step() || busy ? 0 : still + 1;
      if (still == 4) return false;
    }
  }
  // Of the connector: the peer that host 0 is to it.
  PeerId Connect(uint32_t from) {
    const size_t before = hosts[0]->program.ups.size();
    const size_t own = hosts[from]->program.ups.size();
    const PeerId id = hosts[from]->Connect(0);
    EXPECT_TRUE(RunUntil(
        [&] {
          return hosts[0]->program.ups.size() > before && hosts[from]->program.ups.size() > own;
        },
        5'000'000'000, /*thorough=*/true));
    return id;
  }
  // So many messages from a host to its peer, as fast as credits allow.
  bool Send(uint32_t from, PeerId to, uint32_t count, uint32_t size_bytes) {
    const uint64_t target = hosts[0]->program.received + count;
    uint32_t left = count;
    return RunUntil([&] {
      while (left != 0 && hosts[from]->Send(to, size_bytes)) --left;
      return left == 0 && hosts[0]->program.received == target;
    });
  }
  void ExpectClean() {
    for (auto& host : hosts) {
      EXPECT_EQ(host->program.torn, 0u);
      EXPECT_EQ(host->program.gaps, 0u);
      EXPECT_EQ(host->program.downs, 0u);
    }
  }

  std::unique_ptr<softdc::sim::Simulation> simulation;
  std::vector<std::unique_ptr<LaneHost>> hosts;
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TESTS_TRANSPORT_ENDPOINT_LANE_WORLD_H_
