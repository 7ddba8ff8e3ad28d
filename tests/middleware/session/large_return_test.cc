// SPDX-License-Identifier: Apache-2.0
//
// Send buffers of large messages whose peer goes: what was reserved for them is given back, so that a later peer can have it.
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "middleware/session/sessions.h"
#include "tests/transport/endpoint/sim_endpoint.h"

namespace sluice::session {
namespace large_return_test {

using endpoint::PeerId;
using endpoint::SimEndpoint;
using softdc::sim::Simulation;

class Server final : public User {
 public:
  void OnPeerUp(PeerId id, const endpoint::PeerInfo&) override { ups.push_back(id); }
  void OnPeerDown(PeerId, const absl::Status&) override { ++downs; }
  void OnMessage(PeerId, const frame::Header&, std::span<const std::byte>) override {}
  void OnWritable(PeerId) override {}
  void OnProtocolError(PeerId, std::string_view what, std::string_view why) override {
    ADD_FAILURE() << what << why;
  }
  bool Send(PeerId peer, uint32_t bytes) {
    auto buffer = sessions.Reserve(peer, bytes);
    if (!buffer.ok()) return false;
    std::memset(buffer->data, 7, bytes);
    frame::Header header;
    header.kind = frame::Kind::kRequest;
    header.method_id = 1;
    header.call_id = 5;
    header.payload_bytes = bytes;
    sessions.Commit(peer, *buffer, header);
    return true;
  }
  Sessions sessions{this};
  std::vector<PeerId> ups;
  int downs = 0;
};

class LargeReturn : public testing::Test {
 protected:
  // Of a buffer for 40 bytes, once so many peers went with a large message under way: just that, if a send ring is free.
  int CapacityAfter(int times, bool commit) {
    softdc::sim::Options sim_options;
    sim_options.nodes = 2;
    auto sim = std::move(*Simulation::Create(sim_options));
    endpoint::Options options = endpoint::SimEndpointOptions();
    options.max_large_bytes = 1 << 20;
    options.large_memory_bytes = 4 << 20;
    options.max_peers = 2;
    options.srq_size = 256;
    options.send_buffers = 128;
    options.credits_per_peer = 16;
    options.lane_after_messages = 4;
    Server server;
    SimEndpoint s(*sim, 0, 1, options, &server.sessions);
    server.sessions.Attach(&s.endpoint());
    SimEndpoint c(*sim, 1, 1, options);
    s.Listen();
    const auto run = [&](auto done, int64_t limit_ns = 60'000'000'000, bool thorough = false) {
      const int64_t end_ns = sim->NowNs() + limit_ns;
      for (int still = 0;;) {
        bool busy = false;
        uint32_t node = 0;
        for (SimEndpoint* one : {&s, &c}) {
          const Simulation::As as(*sim, node++);
          if (still != 0 || thorough) one->endpoint().PrepareToSleep();
          busy = one->endpoint().Poll() != 0 || busy;
        }
        if (done()) return true;
        if (sim->NowNs() >= end_ns) return false;
        still = sim->Step() || busy ? 0 : still + 1;
        if (still == 4) {
          sim->After(1000, [] {});
          still = 1;
        }
      }
    };
    const auto lane = [&] {
      const size_t ups = server.ups.size();
      EXPECT_TRUE(c.Connect(0).ok());
      EXPECT_TRUE(run([&] { return server.ups.size() > ups && c.recorder.ups.size() > ups; },
                      60'000'000'000, true));
      const uint64_t before = s.endpoint().Counts().lane_sent;
      EXPECT_TRUE(run([&] {
        const Simulation::As as(*sim, 0);
        server.Send(server.ups.back(), 40);
        s.endpoint().Flush();
        return s.endpoint().Counts().lane_sent > before + 3;
      }));
      EXPECT_TRUE(run([&] { return server.sessions.unacknowledged(server.ups.back()) < 8; }));
    };
    for (int i = 0; i < times; ++i) {
      lane();
      {
        const Simulation::As as(*sim, 0);
        const PeerId peer = server.ups.back();
        auto buffer = server.sessions.Reserve(peer, 100'000);
        EXPECT_TRUE(buffer.ok()) << buffer.status();
        if (commit) {
          frame::Header header;
          header.kind = frame::Kind::kRequest;
          header.method_id = 1;
          header.call_id = 5;
          header.payload_bytes = 100'000;
          server.sessions.Commit(peer, *buffer, header);
        }
        s.endpoint().Disconnect(peer);
        EXPECT_TRUE(run(
            [&] {
              return server.downs == i + 1 && c.recorder.downs.size() == static_cast<size_t>(i) + 1;
            },
            60'000'000'000, true));
        if (!commit) server.sessions.Cancel(peer, *buffer);
      }
      run([] { return false; }, 3'000'000);
    }
    lane();
    int result = 0;
    {
      const Simulation::As as(*sim, 0);
      auto buffer = server.sessions.Reserve(server.ups.back(), 40);
      if (buffer.ok()) {
        result = static_cast<int>(buffer->capacity_bytes);
        server.sessions.Cancel(server.ups.back(), *buffer);
      }
    }
    {
      const Simulation::As as(*sim, 0);
      s.endpoint().Disconnect(server.ups.back());
      run([&] { return server.downs == times + 1; });
    }
    return result;
  }
};

TEST_F(LargeReturn, RingsOfPeersThatWentWithALargeMessageComeBack) {
  for (const bool commit : {false, true}) {
    const int fresh = CapacityAfter(0, commit);
    const int later = CapacityAfter(2, commit);
    EXPECT_EQ(fresh, later) << commit;
  }
}
}  // namespace large_return_test
}  // namespace sluice::session
