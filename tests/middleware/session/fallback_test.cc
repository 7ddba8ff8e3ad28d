// SPDX-License-Identifier: Apache-2.0
//
// The same work over devices that lack something: with each capability's fallback messages arrive in
// order, once, and a dead peer stops nobody else.
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "middleware/session/sessions.h"
#include "tests/support/manual_clock.h"
#include "tests/transport/endpoint/endpoint_pair.h"

namespace sluice::session {
namespace fallback_test {

using endpoint::PeerId;
using endpoint::PollUntil;

// Long after the end of the test.
constexpr int64_t kNeverNs = 3'600'000'000'000;

struct Case {
  const char* name;
  void (*change)(verbs::VerbsApi&);
  verbs::Feature missing;
};

const Case kCases[] = {
    {"NoReservedQpn",
     [](verbs::VerbsApi& api) {
       api.dv_reserved_qpn_alloc = [](ibv_context*, uint32_t*) { return EOPNOTSUPP; };
     },
     verbs::Feature::kReservedQpn},
    {"NoStreams",
     [](verbs::VerbsApi& api) {
       api.dv_query_device = [](ibv_context* context, mlx5dv_context* attr) {
         const int result = softdc::Verbs().dv_query_device(context, attr);
         attr->comp_mask &= ~static_cast<uint64_t>(MLX5DV_CONTEXT_MASK_DCI_STREAMS);
         return result;
       };
     },
     verbs::Feature::kStreams},
    {"NoStreamReset",
     [](verbs::VerbsApi& api) {
       api.dv_dci_stream_id_reset = [](ibv_qp*, uint16_t) { return EOPNOTSUPP; };
     },
     verbs::Feature::kStreamReset},
    {"NoAhMapping",
     [](verbs::VerbsApi& api) {
       api.dv_map_ah_to_qp = [](ibv_ah*, uint32_t) { return EOPNOTSUPP; };
     },
     verbs::Feature::kAhMapping},
    {"NoEce",
     [](verbs::VerbsApi& api) { api.query_ece = [](ibv_qp*, ibv_ece*) { return EOPNOTSUPP; }; },
     verbs::Feature::kEce},
};

struct End final : User {
  End(const endpoint::Options& options, base::Clock* time,
      const verbs::VerbsApi* table = &softdc::Verbs())
      : node(options, table, time, &sessions) {
    sessions.Attach(node.endpoint.get());
  }
  void OnPeerUp(PeerId id, const endpoint::PeerInfo&) override { ups.push_back(id); }
  void OnPeerDown(PeerId id, const absl::Status& why) override { downs.push_back({id, why}); }
  void OnMessage(PeerId, const frame::Header&, std::span<const std::byte> bytes) override {
    size_t number;
    std::memcpy(&number, bytes.data(), sizeof(number));
    EXPECT_EQ(number, received) << "lost, repeated or out of order";
    ++received;
  }
  void OnWritable(PeerId) override {}
  void OnProtocolError(PeerId, std::string_view what, std::string_view) override {
    ADD_FAILURE() << what;
  }
  bool Send(PeerId peer, size_t number) {
    auto buffer = sessions.Reserve(peer, sizeof(number));
    if (!buffer.ok()) return false;
    std::memcpy(buffer->data, &number, sizeof(number));
    frame::Header header;
    header.method_id = 1;
    header.payload_bytes = sizeof(number);
    sessions.Commit(peer, *buffer, header);
    return true;
  }
  PeerId ConnectTo(End& server) {
    const auto port = server.node.endpoint->Listen("127.0.0.1", 0);
    EXPECT_TRUE(port.ok()) << port.status();
    const size_t count = ups.size() + 1;
    const auto peer = node.endpoint->Connect("127.0.0.1", *port, kNeverNs);
    EXPECT_TRUE(peer.ok()) << peer.status();
    PollUntil({&node, &server.node}, [&] { return ups.size() == count && !server.ups.empty(); });
    return *peer;
  }

  Sessions sessions{this};
  endpoint::Node node;
  std::vector<PeerId> ups;
  std::vector<std::pair<PeerId, absl::Status>> downs;
  size_t received = 0;
};

class FallbackTest : public testing::TestWithParam<Case> {};

TEST_P(FallbackTest, MessagesFlowAndADeadPeerStopsNobodyElse) {
  verbs::VerbsApi api = softdc::Verbs();
  GetParam().change(api);
  endpoint::Options options;
  options.dead_peer_ns = 50'000'000;
  testing_support::ManualClock time;
  End client(options, &time, &api);
  End healthy(options, &time), doomed(options, &time);
  ASSERT_FALSE(client.node.device->capabilities().Has(GetParam().missing));
  const PeerId good = client.ConnectTo(healthy);
  const PeerId bad = client.ConnectTo(doomed);
  ASSERT_TRUE(client.Send(bad, 0));
  PollUntil({&client.node, &doomed.node}, [&] { return doomed.received == 1; });

  // Gone without a word that the client reads: its next requests run into a DCT that is no more.
  doomed.node.endpoint.reset();
  size_t sent = 0;
  for (size_t i = 1; i <= 8; ++i) {
    (void)client.Send(bad, i);
    for (; sent < 5 * i; ++sent) ASSERT_TRUE(client.Send(good, sent));
  }
  client.node.endpoint->Flush();
  // Time stands still until the healthy one has answered everything: a slow machine makes nobody dead.
  PollUntil({&client.node, &healthy.node}, [&] { return healthy.received == sent; });
  PollUntil({&client.node, &healthy.node}, [&] {
    time.Advance(1'000'000);
    return !client.downs.empty();
  });
  EXPECT_EQ(client.downs[0].first, bad);
  EXPECT_EQ(client.downs[0].second.code(), absl::StatusCode::kUnavailable);
  PollUntil({&client.node, &healthy.node}, [&] {
    while (sent < 1'000 && client.Send(good, sent)) ++sent;
    return healthy.received >= 1'000;
  });
  EXPECT_EQ(healthy.received, 1'000u);
  EXPECT_EQ(client.downs.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Missing, FallbackTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace fallback_test
}  // namespace sluice::session
