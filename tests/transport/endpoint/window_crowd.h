// SPDX-License-Identifier: Apache-2.0
//
// Crowd: a server with few receive buffers, and hosts that connect to it more often than there are windows, in virtual time.
#ifndef SLUICE_TESTS_TRANSPORT_ENDPOINT_WINDOW_CROWD_H_
#define SLUICE_TESTS_TRANSPORT_ENDPOINT_WINDOW_CROWD_H_

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/sim_endpoint.h"

namespace sluice::endpoint {

// A session in small: keeps what is not acknowledged and sends it again, and takes each message once. Sends whenever it may.
class Talker final : public Handler {
 public:
  struct Line {
    uint32_t to_send = 0;
    uint32_t sent = 0;
    uint32_t acknowledged = 0;
    uint32_t expected = 0;
    std::deque<uint32_t> kept;
  };

  void Say(PeerId id, uint32_t messages) {
    lines[id.index].to_send += messages;
    Send(id);
  }
  void OnPeerUp(PeerId id, const PeerInfo&) override {
    ups.push_back(id);
    lines[id.index] = {};
  }
  void OnPeerDown(PeerId id, const absl::Status& why) override {
    downs.push_back(why);
    for (const uint32_t slot : lines[id.index].kept) endpoint->Release(slot);
    lines.erase(id.index);
  }
  bool OnMessage(PeerId id, std::span<const std::byte> bytes) override {
    uint32_t number = 0;
    std::memcpy(&number, bytes.data(), sizeof(number));
    Line& line = lines[id.index];
    if (static_cast<int32_t>(number - line.expected) < 0) {
      ++doubles;
      return false;
    }
    if (number != line.expected) ++gaps;
    line.expected = number + 1;
    ++received;
    return true;
  }
  void OnAcknowledged(PeerId id, uint32_t total) override {
    Line& line = lines[id.index];
    for (; line.acknowledged != total && !line.kept.empty(); ++line.acknowledged) {
      endpoint->Release(line.kept.front());
      line.kept.pop_front();
    }
  }
  bool OnResend(PeerId id) override {
    for (const uint32_t slot : lines[id.index].kept) endpoint->Repost(id, slot);
    return true;
  }
  void OnWritable(PeerId id) override { Send(id); }

  Endpoint* endpoint = nullptr;
  std::map<uint32_t, Line> lines;  // by the peer's index
  std::vector<PeerId> ups;
  std::vector<absl::Status> downs;
  uint64_t received = 0;
  uint64_t doubles = 0;
  uint64_t gaps = 0;

 private:
  void Send(PeerId id) {
    Line& line = lines[id.index];
    while (line.to_send != 0) {
      auto buffer = endpoint->Reserve(id, 64);
      if (!buffer.ok()) return;
      std::memcpy(buffer->data, &line.sent, sizeof(line.sent));
      line.kept.push_back(buffer->slot);
      ++line.sent;
      --line.to_send;
      endpoint->Commit(id, *buffer, 64, false);
    }
  }
};

// A server, node 0, and hosts that each connect to it many times.
class Crowd {
 public:
  struct Host {
    Host(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed, const Options& options)
        : endpoint(simulation, node, seed, options, &talker) {
      talker.endpoint = &endpoint.endpoint();
    }
    Talker talker;
    SimEndpoint endpoint;
  };
  struct Member {
    uint32_t host;
    PeerId id;
  };

  Crowd(const softdc::sim::Options& sim, const Options& server, const Options& client,
        uint32_t peers) {
    simulation = softdc::sim::Simulation::Create(sim).value();
    for (uint32_t node = 0; node < sim.nodes; ++node) {
      hosts.push_back(
          std::make_unique<Host>(*simulation, node, sim.seed, node == 0 ? server : client));
    }
    hosts[0]->endpoint.Listen();
    for (uint32_t i = 0; i < peers; ++i) Connect(1 + i % (sim.nodes - 1));
    EXPECT_TRUE(RunUntil([&] { return hosts[0]->talker.ups.size() == peers && AllUp(); }));
  }
  ~Crowd() {
    for (const Member& member : members) {
      const softdc::sim::Simulation::As as(*simulation, member.host);
      hosts[member.host]->endpoint.endpoint().Disconnect(member.id);
    }
    RunUntil([&] { return hosts[0]->talker.downs.size() >= hosts[0]->talker.ups.size(); },
             3'000'000'000);
  }
  // So many of a host, which has a pace.
  void ConnectAll(uint32_t host, uint32_t count) {
    constexpr uint32_t kAtOnce = 30;
    for (uint32_t made = 0; made < count;) {
      for (uint32_t i = 0; i < kAtOnce && made < count; ++i, ++made) Connect(host);
      ASSERT_TRUE(RunUntil([&] { return talker().ups.size() == members.size() && AllUp(); }));
    }
  }
  void Connect(uint32_t host) {
    const auto id = hosts[host]->endpoint.Connect(0);
    ASSERT_TRUE(id.ok()) << id.status();
    members.push_back({host, *id});
  }
  bool AllUp() const {
    size_t ups = 0;
    for (size_t i = 1; i < hosts.size(); ++i) ups += hosts[i]->talker.ups.size();
    return ups == members.size();
  }
  void Say(size_t member, uint32_t messages) {
    const softdc::sim::Simulation::As as(*simulation, members[member].host);
    hosts[members[member].host]->talker.Say(members[member].id, messages);
  }
  bool RunUntil(const std::function<bool()>& done, int64_t limit_ns = 120'000'000'000) {
    const int64_t end_ns = simulation->NowNs() + limit_ns;
    for (;;) {
      for (auto& host : hosts) {
        if (host.get() != away) host->endpoint.Poll();
      }
      if (done()) return true;
      if (simulation->NowNs() >= end_ns || !simulation->Step()) return false;
    }
  }
  void Pass(int64_t ns) {
    const int64_t end_ns = simulation->NowNs() + ns;
    simulation->After(ns, [] {});
    EXPECT_TRUE(RunUntil([&] { return simulation->NowNs() >= end_ns; }));
  }
  bool RunUntilReceived(uint64_t messages) {
    return RunUntil([&] { return hosts[0]->talker.received >= messages; });
  }
  void ExpectClean() {
    for (auto& host : hosts) {
      EXPECT_EQ(host->talker.gaps, 0u);
      EXPECT_TRUE(host->talker.downs.empty()) << host->talker.downs[0];
      EXPECT_EQ(host->endpoint.endpoint().Counts().over_credit, 0u);
    }
    EXPECT_EQ(Server().dropped_malformed, 0u);
  }
  Counters Client(uint32_t host) { return hosts[host]->endpoint.endpoint().Counts(); }
  std::string Downs() const {
    std::string text;
    for (const auto& host : hosts) {
      for (const absl::Status& why : host->talker.downs) text += "\n" + why.ToString();
    }
    return text;
  }
  Counters Server() { return hosts[0]->endpoint.endpoint().Counts(); }
  Talker& talker() { return hosts[0]->talker; }

  std::unique_ptr<softdc::sim::Simulation> simulation;
  std::vector<std::unique_ptr<Host>> hosts;
  std::vector<Member> members;
  Host* away = nullptr;  // it does not look at anything
};

inline Options ServerOptions(uint32_t buffers, uint32_t credits) {
  Options options = SimEndpointOptions();
  options.srq_size = buffers;
  options.credits_per_peer = credits;
  options.max_peers = 4096;
  options.lane_memory_bytes = 0;
  return options;
}

inline Options ClientOptions() {
  Options options = SimEndpointOptions();
  options.max_peers = 1024;
  options.lane_memory_bytes = 0;
  return options;
}

inline softdc::sim::Options Nodes(uint32_t nodes, uint64_t seed = 1) {
  return {.seed = seed, .nodes = nodes};
}

}  // namespace sluice::endpoint

#endif  // SLUICE_TESTS_TRANSPORT_ENDPOINT_WINDOW_CROWD_H_
