// SPDX-License-Identifier: Apache-2.0
//
// What a peer's report says of its connection: numbers, epochs, and congestion control as both ends
// agreed on it through RDMA_CM.
#include <algorithm>
#include <cerrno>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"

namespace sluice::endpoint {
namespace report_test {

using ::testing::HasSubstr;

constexpr uint32_t kVendor = 0x15b3;
constexpr uint32_t kServerCan = 0x1;

// A device that takes one option only.
verbs::VerbsApi TableWithOneOption() {
  verbs::VerbsApi api = softdc::Verbs();
  api.set_ece = [](ibv_qp* qp, ibv_ece* ece) {
    ibv_ece cut = {.vendor_id = ece->vendor_id,
                   .options = ece->options & kServerCan,
                   .comp_mask = ece->comp_mask};
    return softdc::Verbs().set_ece(qp, &cut);
  };
  api.query_ece = [](ibv_qp* qp, ibv_ece* ece) {
    const int error_number = softdc::Verbs().query_ece(qp, ece);
    ece->options &= kServerCan;
    return error_number;
  };
  return api;
}

PeerReport ReportOf(const Node& node, PeerId peer) {
  auto report = node.endpoint->Report(peer);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : PeerReport();
}

TEST(EndpointReport, CongestionControlIsWhatBothEndsTake) {
  const verbs::VerbsApi modest = TableWithOneOption();
  Node server({}, &modest), client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  const PeerId peer = ConnectPair(client, server, *port);
  const PeerReport at_client = ReportOf(client, peer);
  const PeerReport at_server = ReportOf(server, server.recorder.ups[0].id);

  EXPECT_NE(at_client.offered.options, kServerCan);  // the client's device could do more
  EXPECT_EQ(at_server.received.options, at_client.offered.options);
  EXPECT_EQ(at_server.received.vendor_id, kVendor);
  EXPECT_EQ(at_server.accepted.options, kServerCan);
  EXPECT_EQ(at_client.received.options, kServerCan);
  EXPECT_EQ(at_client.accepted.options, kServerCan);
  EXPECT_EQ(at_client.why_default, "");
  EXPECT_EQ(at_server.why_default, "");
  EXPECT_NE(at_client.template_qp_number, 0u);
  EXPECT_TRUE(at_client.mapped && at_server.mapped);
}

TEST(EndpointReport, NamesNumbersAndEpochsOfBothEnds) {
  Node server, client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  const PeerId peer = ConnectPair(client, server, *port);
  // A command that is still under way has the number.
  const PeerId back = server.recorder.ups[0].id;
  PollUntil({&client, &server}, [&] {
    return ReportOf(client, peer).qp_number != 0 && ReportOf(server, back).qp_number != 0;
  });
  const PeerReport at_client = ReportOf(client, peer);
  const PeerReport at_server = ReportOf(server, back);
  EXPECT_TRUE(at_client.up && at_server.up);
  EXPECT_FALSE(at_client.inbound);
  EXPECT_TRUE(at_server.inbound);
  EXPECT_EQ(at_client.address, "127.0.0.1:" + std::to_string(*port));
  EXPECT_NE(at_client.qp_number, at_server.qp_number);
  EXPECT_EQ(at_client.own_epoch, at_server.peer_epoch);
  EXPECT_EQ(at_server.own_epoch, at_client.peer_epoch);
  EXPECT_NE(at_client.own_epoch, at_server.own_epoch);
}

TEST(EndpointReport, SecondPeerAtTheSameAddressSharesHandleAndTemplate) {
  Node first, second, client;
  const auto first_port = first.endpoint->Listen("127.0.0.1", 0);
  const auto second_port = second.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(first_port.ok() && second_port.ok());
  const PeerReport a = ReportOf(client, ConnectPair(client, first, *first_port));
  const PeerReport b = ReportOf(client, ConnectPair(client, second, *second_port));
  EXPECT_TRUE(a.first_on_handle);
  EXPECT_FALSE(b.first_on_handle);
  EXPECT_TRUE(b.mapped);
  EXPECT_EQ(a.template_qp_number, b.template_qp_number);
}

TEST(EndpointReport, PeerWithoutEceGetsTheDefaultAndTheReason) {
  verbs::VerbsApi plain = softdc::Verbs();
  plain.query_ece = [](ibv_qp*, ibv_ece*) { return EOPNOTSUPP; };
  Node server, client({}, &plain);
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  const PeerId peer = ConnectPair(client, server, *port);
  const PeerReport at_client = ReportOf(client, peer);
  const PeerReport at_server = ReportOf(server, server.recorder.ups[0].id);
  EXPECT_EQ(at_client.offered.vendor_id, 0u);
  EXPECT_THAT(at_client.why_default, HasSubstr("no ECE"));
  EXPECT_EQ(at_server.received.vendor_id, 0u);
  EXPECT_EQ(at_server.accepted.vendor_id, 0u);
  EXPECT_THAT(at_server.why_default, HasSubstr("offered no ECE"));
  // Handles are mapped all the same: to the endpoint's own DCI.
  EXPECT_TRUE(at_server.mapped);
}

// Two clients at one address whose devices differ. Sending follows what was agreed with each; the DCT
// that both send to was ready before either was known.
TEST(EndpointReport, PeersThatAgreedOnDifferentThingsHaveHandlesOfTheirOwnAndShareTheDct) {
  const verbs::VerbsApi modest = TableWithOneOption();
  Node server, plain, other({}, &modest);
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  ConnectPair(plain, server, *port);
  ConnectPair(other, server, *port);
  const PeerReport a = ReportOf(server, server.recorder.ups[0].id);
  const PeerReport b = ReportOf(server, server.recorder.ups[1].id);
  EXPECT_EQ(b.accepted.options, kServerCan);
  EXPECT_NE(a.accepted.options, b.accepted.options);
  EXPECT_NE(a.template_qp_number, b.template_qp_number);
  EXPECT_TRUE(a.first_on_handle && b.first_on_handle);
  EXPECT_TRUE(a.mapped && b.mapped);
  for (const PeerReport& report : {a, b}) {
    EXPECT_EQ(report.receiving.vendor_id, kVendor);
    EXPECT_EQ(report.receiving.options, 0u);  // the device's preset
    EXPECT_EQ(report.offered.options, a.offered.options);
  }
  EXPECT_EQ(server.endpoint->Connections().handles_made, 2u);
}

TEST(EndpointConnections, PeerThatComesBackFindsItsHandleAndItsOldNumberIsQuarantined) {
  Node server, client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  const PeerId peer = ConnectPair(client, server, *port);
  const PeerReport first = ReportOf(client, peer);
  client.endpoint->Disconnect(peer);
  PollUntil({&client, &server}, [&] {
    return client.endpoint->Connections().handles_idle == 1 &&
           client.endpoint->Connections().numbers_quarantined == 1;
  });
  const PeerReport second = ReportOf(client, ConnectPair(client, server, *port));
  EXPECT_TRUE(first.first_on_handle);
  EXPECT_FALSE(second.first_on_handle);
  EXPECT_TRUE(second.mapped);
  EXPECT_EQ(second.template_qp_number, first.template_qp_number);
  const ConnectionCounts counts = client.endpoint->Connections();
  EXPECT_EQ(counts.handles_made, 1u);
  EXPECT_EQ(counts.handles_reused, 1u);
  EXPECT_EQ(counts.handles_in_use, 1u);
  EXPECT_EQ(counts.numbers_live, 1u);
  EXPECT_EQ(counts.numbers_quarantined, 1u);
  EXPECT_EQ(counts.numbers_exhausted, 0u);
}

TEST(EndpointConnections, NoNumberLeftIsCounted) {
  static bool refuse = false;
  verbs::VerbsApi api = softdc::Verbs();
  api.dv_reserved_qpn_alloc = [](ibv_context* context, uint32_t* number) {
    return refuse ? ENOMEM : softdc::Verbs().dv_reserved_qpn_alloc(context, number);
  };
  Node server, client({}, &api);
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  refuse = true;
  const auto peer =
      client.endpoint->Connect("127.0.0.1", *port, client.clock.NowNs() + 10'000'000'000);
  ASSERT_TRUE(peer.ok());
  PollUntil({&client, &server}, [&] { return !client.recorder.downs.empty(); });
  EXPECT_EQ(client.endpoint->Connections().numbers_exhausted, 1u);
  EXPECT_EQ(client.endpoint->Connections().numbers_live, 0u);
}

TEST(EndpointReport, MappingThatFailsIsShownWithItsReason) {
  static bool refuse = false;
  verbs::VerbsApi api = softdc::Verbs();
  api.dv_map_ah_to_qp = [](ibv_ah* handle, uint32_t number) {
    return refuse ? EPERM : softdc::Verbs().dv_map_ah_to_qp(handle, number);
  };
  Node server, client({}, &api);
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  refuse = true;
  const PeerReport report = ReportOf(client, ConnectPair(client, server, *port));
  EXPECT_TRUE(report.up);
  EXPECT_FALSE(report.mapped);
  EXPECT_THAT(report.why_unmapped, HasSubstr("EPERM"));
  EXPECT_EQ(client.endpoint->Connections().map_failures, 1u);
}

TEST(EndpointConnections, HandleThatCannotBeMadeEndsTheConnectWithItsReasonAndIsCounted) {
  static bool refuse = false;
  verbs::VerbsApi api = softdc::Verbs();
  api.create_ah = [](ibv_pd* pd, ibv_ah_attr* attr) {
    if (!refuse) return softdc::Verbs().create_ah(pd, attr);
    errno = ETIMEDOUT;
    return static_cast<ibv_ah*>(nullptr);
  };
  Node server, client({}, &api);
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  refuse = true;
  const auto peer =
      client.endpoint->Connect("127.0.0.1", *port, client.clock.NowNs() + 10'000'000'000);
  ASSERT_TRUE(peer.ok());
  PollUntil({&client, &server}, [&] { return !client.recorder.downs.empty(); });
  EXPECT_THAT(std::string(client.recorder.downs[0].why.message()), HasSubstr("ibv_create_ah"));
  EXPECT_EQ(client.endpoint->Connections().handle_failures, 1u);
}

// Whatever it was sent, it did not answer: another way may lead there by now.
TEST(EndpointConnections, HandleOfAPeerThatDidNotAnswerIsNotKept) {
  // A server whose first DCT, that for messages, has another key than it says.
  static int dcts = 0;
  dcts = 0;
  verbs::VerbsApi api = softdc::Verbs();
  api.dv_create_qp = [](ibv_context* context, ibv_qp_init_attr_ex* attr, mlx5dv_qp_init_attr* dv) {
    const bool dct = dv->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT;
    if (dct && ++dcts == 1) dv->dc_init_attr.dct_access_key ^= 1;
    return softdc::Verbs().dv_create_qp(context, attr, dv);
  };
  auto device = device::Device::Open("softdc0", {&api});  // whose trial has a DCT of its own
  dcts = 0;
  Node server, client({.dead_peer_ns = 100'000'000});
  auto deaf =
      CreateEndpoint({}, **device, server.clock, server.random, server.commands, &server.recorder);
  ASSERT_TRUE(deaf.ok()) << deaf.status();
  server.endpoint = std::move(*deaf);
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  const PeerId peer = ConnectPair(client, server, *port);
  ASSERT_TRUE(client.Send(peer, "anybody?").ok());
  client.endpoint->Flush();
  uint32_t resetting = 0;  // at most, at any time; each of them counts as in error too
  PollUntil({&client, &server}, [&] {
    uint32_t now = 0, errored = 0;
    for (const QueueReport& queue : client.endpoint->Queues()) {
      now += queue.streams_resetting;
      errored += queue.streams_errored;
    }
    EXPECT_LE(now, errored);
    resetting = std::max(resetting, now);
    return !client.recorder.downs.empty();
  });
  EXPECT_EQ(resetting, 1u);
  PollUntil({&client, &server}, [&] { return client.endpoint->Connections().handles_in_use == 0; });
  EXPECT_EQ(client.endpoint->Connections().handles_idle, 0u);
}

TEST(EndpointReport, CreditsAreThoseThatAreLeft) {
  Node server, client;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  const PeerId peer = ConnectPair(client, server, *port);
  const PeerReport before = ReportOf(client, peer);
  EXPECT_GT(before.credit_window, 0u);
  EXPECT_EQ(before.credits, before.credit_window);
  EXPECT_FALSE(before.blocked || before.probe_outstanding);
  for (uint32_t i = 0; i < before.credit_window; ++i) {
    ASSERT_TRUE(client.Send(peer, "one").ok());
    EXPECT_EQ(ReportOf(client, peer).credits, before.credit_window - i - 1);
  }
  EXPECT_FALSE(ReportOf(client, peer).blocked);
  EXPECT_FALSE(client.Send(peer, "one too many").ok());
  EXPECT_TRUE(ReportOf(client, peer).blocked);
}

TEST(EndpointReport, UnknownPeerIsUnavailable) {
  Node node;
  EXPECT_EQ(node.endpoint->Report({7, 7}).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace report_test
}  // namespace sluice::endpoint
