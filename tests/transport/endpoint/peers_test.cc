// SPDX-License-Identifier: Apache-2.0
//
// How peers end: at one point of a pass, whatever ends them and whoever is in the middle of something with them. In virtual
// time.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/sim_endpoint.h"

namespace sluice::endpoint {
namespace {

using softdc::sim::Simulation;

constexpr uint32_t kServer = 0;
constexpr uint32_t kClient = 1;

// Keeps nothing, but says that it does; and does what a test likes when something happens.
struct Program : Recorder {
  bool OnResend(PeerId) override { return true; }
  void OnPeerUp(PeerId peer, const PeerInfo& info) override {
    Recorder::OnPeerUp(peer, info);
    if (on_up) on_up(peer);
  }
  void OnPeerDown(PeerId peer, const absl::Status& why) override {
    Recorder::OnPeerDown(peer, why);
    if (on_down) on_down(peer);
  }

  std::function<void(PeerId)> on_up;
  std::function<void(PeerId)> on_down;
};

bool g_refuse_doorbells = false;

// A device that refuses a whole batch when it is told to. Queue pairs are asked for their operations once, when they are made.
const verbs::VerbsApi& RefusingTable() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = Simulation::Verbs();
    api.qp_to_qp_ex = [](ibv_qp* qp) {
      ibv_qp_ex* ex = Simulation::Verbs().qp_to_qp_ex(qp);
      static int (*const complete)(ibv_qp_ex*) = ex->wr_complete;
      ex->wr_complete = [](ibv_qp_ex* own) {
        if (!g_refuse_doorbells) return complete(own);
        own->wr_abort(own);
        return EIO;
      };
      return ex;
    };
    return api;
  }();
  return table;
}

class PeersTest : public testing::Test {
 protected:
  void Make(const Options& options = SimEndpointOptions(),
            const verbs::VerbsApi* server_table = &Simulation::Verbs()) {
    g_refuse_doorbells = false;
    softdc::sim::Options sim_options;
    sim_options.nodes = 2;
    simulation_ = Simulation::Create(sim_options).value();
    server_ =
        std::make_unique<SimEndpoint>(*simulation_, kServer, 1, options, &at_server_, server_table);
    client_ = std::make_unique<SimEndpoint>(*simulation_, kClient, 1, options, &at_client_);
    server_->Listen();
  }
  void TearDown() override {
    at_server_.on_up = at_server_.on_down = nullptr;
    at_server_.on_message = nullptr;
    if (server_ == nullptr) return;
    // Goodbyes would be waited for in real time.
    for (const auto& up : at_server_.ups)
      As(kServer, [&](Endpoint& own) { own.Disconnect(up.id); });
    for (const auto& up : at_client_.ups)
      As(kClient, [&](Endpoint& own) { own.Disconnect(up.id); });
    Run([] { return false; }, 1'000'000'000);
  }
  bool Run(const std::function<bool()>& done, int64_t limit_ns = 60'000'000'000) {
    return RunUntil(*simulation_, {client_.get(), server_.get()}, done, limit_ns);
  }
  void As(uint32_t node, const std::function<void(Endpoint&)>& act) {
    const Simulation::As as(*simulation_, node);
    act((node == kServer ? *server_ : *client_).endpoint());
  }
  // The server's name for the new peer.
  PeerId ConnectUp() {
    const size_t ups = at_client_.ups.size(), server_ups = at_server_.ups.size();
    const auto peer = client_->Connect(kServer);
    EXPECT_TRUE(peer.ok()) << peer.status();
    EXPECT_TRUE(
        Run([&] { return at_client_.ups.size() > ups && at_server_.ups.size() > server_ups; }));
    return at_server_.ups.back().id;
  }

  std::unique_ptr<Simulation> simulation_;
  Program at_server_;
  Program at_client_;
  std::unique_ptr<SimEndpoint> server_;
  std::unique_ptr<SimEndpoint> client_;
};

// Its goodbye is dropped at once, so it ends inside Disconnect(): no timer of it may be left in a record that the next peer gets.
TEST_F(PeersTest, DisconnectWhileTheTargetIsBrokenLeavesNothingBehind) {
  Make();
  const PeerId peer = ConnectUp();
  for (int round = 0; round < 3; ++round) {
    simulation_->FailNext({.node = kServer, .peer = kClient, .opcode = IBV_WR_SEND});
    ASSERT_TRUE(server_->Send(at_server_.ups.back().id, "lost").ok());
    const uint64_t failed = server_->endpoint().Counts().requests_failed;
    ASSERT_TRUE(Run([&] { return server_->endpoint().Counts().requests_failed > failed; }));
    As(kServer, [&](Endpoint& own) { own.Disconnect(at_server_.ups.back().id); });
    const size_t downs = at_server_.downs.size();
    EXPECT_EQ(downs, static_cast<size_t>(round)) << "the handler is told by Poll()";
    ASSERT_TRUE(
        Run([&] { return at_server_.downs.size() > downs && at_client_.downs.size() > downs; }));
    EXPECT_EQ(at_server_.downs.back().why.code(), absl::StatusCode::kCancelled);
    const PeerId next = ConnectUp();
    EXPECT_EQ(next.index, peer.index) << "the same record again";
    // Longer than the goodbye of the one before might have taken.
    EXPECT_FALSE(Run([&] { return at_server_.downs.size() > downs + 1; }, 500'000'000));
    ASSERT_TRUE(server_->Send(next, "arrives").ok());
    ASSERT_TRUE(Run([&] { return !at_client_.messages.empty(); }));
    EXPECT_EQ(at_client_.messages.back(), "arrives");
    at_client_.messages.clear();
  }
}

// A program finds what it knows of a peer by the index: a newcomer must not stand there while an end is still to be told.
TEST_F(PeersTest, NobodyGetsTheIndexOfAPeerWhoseEndIsStillToBeTold) {
  Make();
  std::vector<PeerId> ended, newcomers;
  at_client_.on_down = [&](PeerId peer) {
    ended.push_back(peer);
    if (ended.size() > 2) return;
    for (const PeerId& newcomer : newcomers) EXPECT_NE(newcomer.index, peer.index);
    const auto next = client_->endpoint().Connect("nowhere", 1, INT64_MAX);
    ASSERT_TRUE(next.ok()) << next.status();
    newcomers.push_back(*next);
  };
  const auto first = client_->Connect(kServer);
  const auto second = client_->Connect(kServer);
  ASSERT_TRUE(first.ok() && second.ok());
  As(kClient, [&](Endpoint& own) {
    own.Disconnect(*first);
    own.Disconnect(*second);
  });
  ASSERT_TRUE(Run([&] { return ended.size() >= 2; }));
  EXPECT_EQ(ended[0], *first);
  EXPECT_EQ(ended[1], *second);
  at_client_.on_down = nullptr;
  for (const PeerId& newcomer : newcomers)
    As(kClient, [&](Endpoint& own) { own.Disconnect(newcomer); });
  ASSERT_TRUE(Run([&] { return at_client_.downs.size() == 4; }));
  // All places are free again.
  const PeerId next = ConnectUp();
  ASSERT_TRUE(server_->Send(next, "arrives").ok());
  ASSERT_TRUE(Run([&] { return !at_client_.messages.empty(); }));
}

// The answer that ends its handshake is reported, as the goodbye is, and earlier.
TEST_F(PeersTest, DisconnectInOnPeerUpComesBehindWhatWasSentThere) {
  Make();
  at_server_.on_up = [&](PeerId peer) {
    for (int i = 0; i < 6; ++i) ASSERT_TRUE(server_->Send(peer, std::to_string(i)).ok());
    server_->endpoint().Disconnect(peer);
  };
  ASSERT_TRUE(client_->Connect(kServer).ok());
  ASSERT_TRUE(Run([&] { return !at_client_.downs.empty(); }));
  EXPECT_EQ(at_client_.messages, (std::vector<std::string>{"0", "1", "2", "3", "4", "5"}));
  EXPECT_NE(at_client_.downs[0].why.message().find("peer closed the connection"),
            absl::string_view::npos)
      << at_client_.downs[0].why;
}

// The device refuses a batch with a goodbye in it while others are posted to: the peer ends there, and nobody else is forgotten.
TEST_F(PeersTest, GoodbyeThatIsRefusedAmongReportsToOthersEndsThatPeerOnly) {
  Options options = SimEndpointOptions();
  options.max_peers = 40;
  options.srq_size = 512;
  Make(options, &RefusingTable());
  constexpr int kPeers = 24;
  std::vector<PeerId> at_server;
  for (int i = 0; i < kPeers; ++i) at_server.push_back(ConnectUp());
  const auto send = [&](int from, bool report_soon) {
    As(kClient, [&](Endpoint& own) {
      const PeerId to = at_client_.ups[static_cast<size_t>(from)].id;
      const auto buffer = own.Reserve(to, 1);
      ASSERT_TRUE(buffer.ok()) << buffer.status();
      *buffer->data = std::byte{'m'};
      own.Commit(to, *buffer, 1, report_soon);
      own.Release(buffer->slot);
    });
  };
  // All are owed a report in the pass in which the last but one goes.
  const PeerId gone = at_server[kPeers - 2];
  int seen = 0;
  at_server_.on_message = [&](PeerId peer, std::span<const std::byte>) {
    if (!(peer == gone) || ++seen < 2) return;
    server_->endpoint().Disconnect(gone);
    g_refuse_doorbells = true;
  };
  for (int i = 0; i < kPeers; ++i) send(i, /*report_soon=*/true);
  send(kPeers - 2, /*report_soon=*/false);
  As(kClient, [&](Endpoint& own) { own.Poll(); });
  simulation_->RunFor(10'000'000);  // all of them are there before the server looks
  As(kServer, [&](Endpoint& own) { own.Poll(); });
  ASSERT_TRUE(g_refuse_doorbells);
  g_refuse_doorbells = false;
  ASSERT_TRUE(Run([&] { return !at_server_.downs.empty() && !at_client_.downs.empty(); }));
  EXPECT_EQ(at_server_.downs.size(), 1u);
  EXPECT_EQ(at_server_.downs[0].id, gone);
  // Everybody else is given credit again and again.
  at_server_.on_message = nullptr;
  for (int i = 0; i < kPeers; ++i) {
    if (i == kPeers - 2) continue;
    const PeerId to = at_client_.ups[static_cast<size_t>(i)].id;
    for (int k = 0; k < 30; ++k) {
      ASSERT_TRUE(Run([&] { return client_->Send(to, "again").ok(); })) << i << " " << k;
    }
  }
  EXPECT_EQ(at_server_.downs.size(), 1u);
}

// Replies that nobody has asked a completion for must not keep places and credits of peers that have gone.
TEST_F(PeersTest, ClientsThatLeaveGiveTheirPlacesAndCreditsBackAtOnce) {
  Options options = SimEndpointOptions();
  options.max_peers = 15;
  options.srq_size = 128;
  Make(options);
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    const size_t before = at_server_.ups.size();
    for (int i = 0; i < 15; ++i) ConnectUp();
    // The first message ends the probation of its peer, the second one is unsignalled.
    for (int i = 0; i < 2; ++i) {
      for (size_t at = before; at < at_server_.ups.size(); ++at) {
        const size_t messages = at_client_.messages.size();
        ASSERT_TRUE(server_->Send(at_server_.ups[at].id, "reply").ok());
        ASSERT_TRUE(Run([&] { return at_client_.messages.size() > messages; }));
      }
    }
    const size_t downs = at_server_.downs.size();
    As(kClient, [&](Endpoint& own) {
      for (size_t at = before; at < at_client_.ups.size(); ++at)
        own.Disconnect(at_client_.ups[at].id);
    });
    ASSERT_TRUE(Run([&] { return at_server_.downs.size() == downs + 15; }));
    // Connections of the clients come to their end.
    Run([] { return false; }, 2'000'000'000);
  }
  // A client that is alone has all the credit that there is for one.
  const PeerId peer = ConnectUp();
  EXPECT_TRUE(server_->endpoint().Report(peer).ok());
  uint32_t credits = 0;
  while (client_->Send(at_client_.ups.back().id, "m").ok()) ++credits;
  EXPECT_EQ(credits, options.credits_per_peer);
}

}  // namespace
}  // namespace sluice::endpoint
