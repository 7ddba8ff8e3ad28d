// SPDX-License-Identifier: Apache-2.0
//
// The same work over devices that lack something: each capability's fallback carries messages and
// isolates a dead peer.
#include <cerrno>
#include <string>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"

namespace sluice::endpoint {
namespace {

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

class FallbackTest : public testing::TestWithParam<Case> {};

TEST_P(FallbackTest, MessagesFlowAndADeadPeerStopsNobodyElse) {
  verbs::VerbsApi api = softdc::Verbs();
  GetParam().change(api);
  Options options;
  options.dead_peer_ns = 50'000'000;
  Node client(options, &api);
  Node healthy(options), doomed(options);
  ASSERT_FALSE(client.device->capabilities().Has(GetParam().missing));
  const auto healthy_port = healthy.endpoint->Listen("127.0.0.1", 0);
  const auto doomed_port = doomed.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(healthy_port.ok() && doomed_port.ok());
  const PeerId good = ConnectPair(client, healthy, *healthy_port);
  const PeerId bad = ConnectPair(client, doomed, *doomed_port);
  ASSERT_TRUE(client.Send(bad, "hello").ok());
  PollUntil({&client, &doomed}, [&] { return !doomed.recorder.messages.empty(); });

  // Gone without a word that the client reads: its next requests run into a DCT that is no more.
  doomed.endpoint.reset();
  size_t sent = 0;
  for (int i = 0; i < 8; ++i) {
    (void)client.Send(bad, "anybody?");
    while (sent < 5u * (static_cast<size_t>(i) + 1)) {
      ASSERT_TRUE(client.Send(good, std::to_string(sent)).ok());
      ++sent;
    }
  }
  client.endpoint->Flush();
  PollUntil({&client, &healthy}, [&] { return !client.recorder.downs.empty(); });
  EXPECT_EQ(client.recorder.downs[0].id, bad);
  EXPECT_EQ(client.recorder.downs[0].why.code(), absl::StatusCode::kUnavailable);
  PollUntil({&client, &healthy}, [&] {
    while (sent < 1'000 && client.Send(good, std::to_string(sent)).ok()) ++sent;
    return healthy.recorder.messages.size() >= 1'000;
  });
  ASSERT_EQ(healthy.recorder.messages.size(), 1'000u);
  for (size_t i = 0; i < 1'000; ++i) {
    ASSERT_EQ(healthy.recorder.messages[i], std::to_string(i));
  }
  EXPECT_EQ(client.recorder.downs.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Missing, FallbackTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sluice::endpoint
