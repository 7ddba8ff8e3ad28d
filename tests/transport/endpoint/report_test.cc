// SPDX-License-Identifier: Apache-2.0
//
// What a peer's report says of its connection: numbers, epochs, and congestion control as both ends
// agreed on it through RDMA_CM.
#include <cerrno>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"

namespace sluice::endpoint {
namespace {

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

TEST(EndpointReport, UnknownPeerIsUnavailable) {
  Node node;
  EXPECT_EQ(node.endpoint->Report({7, 7}).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice::endpoint
