// SPDX-License-Identifier: Apache-2.0
//
// RDMA_CM with queue pairs that it does not know: events, private data, refusals, parting.
#include <cstring>
#include <string>

#include "tests/transport/softdc/conformance/cm_end.h"
#include "tests/transport/softdc/conformance/conformance_test.h"

namespace sluice::conformance {
namespace {

// Numbers as an application would have reserved them.
constexpr uint32_t kClientQp = 0x10001, kServerQp = 0x20002;

class Connect : public ConformanceTest {
 protected:
  void SetUp() override {
    ConformanceTest::SetUp();
    if (IsSkipped()) return;
    if (bed().IpOf(0).empty()) GTEST_SKIP() << "the device has no IPv4 address";
    client_ = std::make_unique<CmEnd>(bed(), 0);
    server_ = std::make_unique<CmEnd>(bed(), 1);
    listener_ = server_->Listen();
  }
  rdma_cm_id* Resolved() { return client_->Resolved(*server_, listener_); }
  CmConnection Up(uint32_t client_qp = kClientQp, uint32_t server_qp = kServerQp) {
    return Establish(*client_, client_qp, *server_, listener_, server_qp);
  }
  // The request of a client that has called connect with a number of its own, at first kClientQp.
  CmEvent Request(rdma_cm_id* id, const std::string& data = "") {
    EXPECT_EQ(client_->Connect(id, next_qp_++, data), 0);
    const CmEvent request = server_->Next();
    EXPECT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
    return request;
  }

  std::unique_ptr<CmEnd> client_, server_;
  rdma_cm_id* listener_ = nullptr;
  uint32_t next_qp_ = kClientQp;
};
ON_EVERY_DEVICE(Connect);

TEST_P(Connect, EventsComeInOrderAndCarryWhatTheySay) {
  PROVES(21);
  rdma_cm_id* id = Resolved();
  EXPECT_NE(id->verbs, nullptr);
  EXPECT_NE(id->pd, nullptr);
  EXPECT_EQ(id->port_num, 1);
  ASSERT_EQ(client_->Connect(id, 0x7f000000 | kClientQp, "hello"), 0);
  const CmEvent request = server_->Next();
  EXPECT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(request.status, 0);
  EXPECT_EQ(request.listener, listener_);
  EXPECT_NE(request.id, listener_);
  EXPECT_NE(request.id->verbs, nullptr);
  EXPECT_EQ(request.qp_num, kClientQp);  // cut to 24 bits
  EXPECT_TRUE(client_->Quiet());
  ASSERT_EQ(server_->Accept(request.id, kServerQp, "welcome"), 0);
  const CmEvent response = client_->Next();
  EXPECT_EQ(response.type, RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_EQ(response.id, id);
  EXPECT_EQ(response.qp_num, kServerQp);
  EXPECT_TRUE(server_->Quiet());
  ASSERT_EQ(api().cm_establish(id), 0);
  const CmEvent established = server_->Next();
  EXPECT_EQ(established.type, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(established.id, request.id);
  EXPECT_EQ(established.data, "");
  EXPECT_TRUE(client_->Quiet());
}

TEST_P(Connect, PrivateDataIsPaddedToItsField) {
  PROVES(22);
  rdma_cm_id* id = Resolved();
  const CmEvent request = Request(id, "hello");
  EXPECT_EQ(request.data, std::string("hello") + std::string(51, '\0'));
  ASSERT_EQ(server_->Accept(request.id, kServerQp, "welcome"), 0);
  EXPECT_EQ(client_->Next().data, std::string("welcome") + std::string(189, '\0'));
  const CmEvent second = Request(Resolved());
  ASSERT_EQ(api().cm_reject(second.id, "no", 2), 0);
  const CmEvent rejected = client_->Next();
  EXPECT_EQ(rejected.data, std::string("no") + std::string(146, '\0'));
}

TEST_P(Connect, PrivateDataHasLimits) {
  PROVES(22);
  rdma_cm_id* id = Resolved();
  EXPECT_EQ(client_->Connect(id, kClientQp, std::string(57, 'x')), -1);
  EXPECT_EQ(errno, EINVAL);
  const CmEvent request = Request(id, std::string(56, 'x'));  // nothing was spoilt
  EXPECT_EQ(request.data, std::string(56, 'x'));
  ASSERT_EQ(server_->Accept(request.id, kServerQp, std::string(196, 'y')), 0);
  EXPECT_EQ(client_->Next().data, std::string(196, 'y'));
  const CmEvent second = Request(Resolved());
  const std::string longest(149, 'z');
  EXPECT_EQ(api().cm_reject(second.id, longest.data(), 149), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_P(Connect, OversizeAcceptRejects) {
  PROVES(22, 23);
  const CmEvent request = Request(Resolved());
  EXPECT_EQ(server_->Accept(request.id, kServerQp, std::string(197, 'y')), -1);
  EXPECT_EQ(errno, EINVAL);
  const CmEvent rejected = client_->Next();
  EXPECT_EQ(rejected.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.status, 28);
}

TEST_P(Connect, RefusalsSayWhy) {
  PROVES(23, 74);
  CmEvent event;
  {
    rdma_cm_id* gone = server_->Listen();
    const uint16_t port = api().cm_get_src_port(gone);
    server_->Destroy(gone);
    rdma_cm_id* id = client_->ResolvedTo(server_->host, port);
    ASSERT_EQ(client_->Connect(id, kClientQp), 0);
    event = client_->Next();
    EXPECT_EQ(event.type, RDMA_CM_EVENT_REJECTED);
    EXPECT_EQ(event.status, 8);
  }
  const CmEvent first = Request(Resolved());
  ASSERT_EQ(api().cm_reject(first.id, nullptr, 0), 0);
  event = client_->Next();
  EXPECT_EQ(event.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(event.status, 28);
  const CmEvent second = Request(Resolved());
  ASSERT_EQ(api().cm_reject_ece(second.id, nullptr, 0), 0);
  event = client_->Next();
  EXPECT_EQ(event.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(event.status, 35);
}

TEST_P(Connect, NumberInUseIsStaleAndKillsTheOlderConnection) {
  PROVES(23);
  const CmConnection old = Up();
  rdma_cm_id* id = Resolved();
  ASSERT_EQ(client_->Connect(id, kClientQp), 0);
  const CmEvent first = client_->Next();
  const CmEvent second = client_->Next();
  const CmEvent& rejected = first.id == id ? first : second;
  const CmEvent& torn = first.id == id ? second : first;
  EXPECT_EQ(rejected.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.status, 10);
  EXPECT_EQ(torn.type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(torn.id, old.client);
}

TEST_P(Connect, OtherNumberOfTheSameClientIsNotStale) {
  PROVES(23);
  Up();
  Up(kClientQp + 1, kServerQp + 1);
  EXPECT_TRUE(client_->Quiet());
  EXPECT_TRUE(server_->Quiet());
}

TEST_P(Connect, DisconnectIsHeardAtOnceAndAnsweredByTheApplication) {
  PROVES(24);
  const CmConnection made = Up();
  ASSERT_EQ(api().cm_disconnect(made.client), 0);
  const CmEvent heard = server_->Next();
  EXPECT_EQ(heard.type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(heard.status, 0);
  EXPECT_TRUE(client_->Quiet());
  ASSERT_EQ(api().cm_disconnect(made.server), 0);
  EXPECT_EQ(client_->Next().type, RDMA_CM_EVENT_DISCONNECTED);
  for (CmEnd* end : {client_.get(), server_.get()}) {
    const CmEvent exit = end->Next();
    EXPECT_EQ(exit.type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    EXPECT_EQ(exit.status, 0);
  }
}

TEST_P(Connect, DestroyedIdTellsThePeerAndHearsNoMore) {
  PROVES(24);
  const CmConnection made = Up();
  client_->Destroy(made.client);
  EXPECT_EQ(server_->Next().type, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(api().cm_disconnect(made.server), 0);
  EXPECT_EQ(server_->Next().type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  EXPECT_TRUE(client_->Quiet());
}

TEST_P(Connect, ExternalQueuePairsNeedParametersWithinTheDevicesLimits) {
  PROVES(73);
  rdma_cm_id* id = Resolved();
  EXPECT_EQ(api().cm_connect(id, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  ibv_device_attr device{};
  ASSERT_EQ(api().query_device(id->verbs, &device), 0);
  rdma_conn_param param{};
  param.qp_num = kClientQp;
  param.responder_resources = static_cast<uint8_t>(device.max_qp_rd_atom + 1);
  EXPECT_EQ(api().cm_connect(id, &param), -1);
  EXPECT_EQ(errno, EINVAL);
  param.responder_resources = 1;
  param.initiator_depth = static_cast<uint8_t>(device.max_qp_init_rd_atom + 1);
  EXPECT_EQ(api().cm_connect(id, &param), -1);
  EXPECT_EQ(errno, EINVAL);
  param.initiator_depth = 1;
  EXPECT_EQ(api().cm_connect(id, &param), 0);
  EXPECT_EQ(server_->Next().type, RDMA_CM_EVENT_CONNECT_REQUEST);
}

TEST_P(Connect, ActiveSideMayRejectTheResponse) {
  PROVES(75);
  rdma_cm_id* id = Resolved();
  const CmEvent request = Request(id);
  ASSERT_EQ(server_->Accept(request.id, kServerQp), 0);
  EXPECT_EQ(client_->Next().type, RDMA_CM_EVENT_CONNECT_RESPONSE);
  ASSERT_EQ(api().cm_reject(id, nullptr, 0), 0);
  const CmEvent rejected = server_->Next();
  EXPECT_EQ(rejected.type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.id, request.id);
  EXPECT_EQ(rejected.status, 28);
}

TEST_P(Connect, ClientThatVanishesBeforeAcceptIsNoticedByAccept) {
  PROVES(62);
  rdma_cm_id* id = Resolved();
  const CmEvent request = Request(id);
  client_->Destroy(id);
  // A later event of another connection shows that the first one's end has arrived and was silent.
  const CmConnection other = Up(kClientQp + 5, kServerQp + 5);
  EXPECT_NE(other.server, nullptr);
  EXPECT_TRUE(server_->Quiet());
  EXPECT_EQ(server_->Accept(request.id, kServerQp), -1);
}

TEST_P(Connect, EceTravelsWithTheHandshake) {
  PROVES(78);
  rdma_cm_id* id = Resolved();
  ibv_ece ece{.vendor_id = 0, .options = 1, .comp_mask = 0};
  EXPECT_EQ(api().cm_set_local_ece(id, &ece), -1);
  EXPECT_EQ(errno, EINVAL);
  ece = {.vendor_id = 0x15b3, .options = 1, .comp_mask = 1};
  EXPECT_EQ(api().cm_set_local_ece(id, &ece), -1);
  EXPECT_EQ(errno, EINVAL);
  ece = {.vendor_id = 0x15b3, .options = 0x30000003, .comp_mask = 0};
  ASSERT_EQ(api().cm_set_local_ece(id, &ece), 0);
  const CmEvent request = Request(id);
  ibv_ece seen{};
  ASSERT_EQ(api().cm_get_remote_ece(request.id, &seen), 0);
  EXPECT_EQ(seen.vendor_id, 0x15b3u);
  EXPECT_EQ(seen.options, 0x30000003u);
  ece = {.vendor_id = 0x4711, .options = 2, .comp_mask = 0};
  ASSERT_EQ(api().cm_set_local_ece(request.id, &ece), 0);
  ASSERT_EQ(server_->Accept(request.id, kServerQp), 0);
  EXPECT_EQ(client_->Next().type, RDMA_CM_EVENT_CONNECT_RESPONSE);
  ASSERT_EQ(api().cm_get_remote_ece(id, &seen), 0);
  EXPECT_EQ(seen.vendor_id, 0x15b3u);  // the asker's, not the answerer's
  EXPECT_EQ(seen.options, 2u);
}

TEST_P(Connect, QueuePairAttributesAreThoseOfAnRcConnection) {
  PROVES(82);
  rdma_cm_id* id = Resolved();
  ibv_qp_attr attr{};
  int mask = 0;
  // What INIT needs, whatever the state: there is no connection yet.
  attr.qp_state = IBV_QPS_RTR;
  EXPECT_EQ(api().cm_init_qp_attr(id, &attr, &mask), 0);
  EXPECT_EQ(mask, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT);
  const CmEvent request = Request(id);
  attr.qp_state = IBV_QPS_RTR;
  EXPECT_EQ(api().cm_init_qp_attr(id, &attr, &mask), -1);  // not before the response
  EXPECT_EQ(errno, EINVAL);
  attr = {};
  attr.qp_state = IBV_QPS_INIT;
  ASSERT_EQ(api().cm_init_qp_attr(id, &attr, &mask), 0);
  EXPECT_EQ(mask, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT);
  ibv_qp_attr rtr{};
  rtr.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(api().cm_init_qp_attr(request.id, &rtr, &mask), 0);
  EXPECT_EQ(mask, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  EXPECT_EQ(rtr.dest_qp_num, kClientQp);
  EXPECT_EQ(rtr.ah_attr.is_global, 1);
  EXPECT_EQ(rtr.ah_attr.port_num, 1);
  EXPECT_EQ(rtr.min_rnr_timer, 0);
  // Its address vector is one that the device takes.
  ibv_ah* ah = api().create_ah(request.id->pd, &rtr.ah_attr);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(api().destroy_ah(ah), 0);
  ASSERT_EQ(server_->Accept(request.id, kServerQp), 0);
  EXPECT_EQ(client_->Next().type, RDMA_CM_EVENT_CONNECT_RESPONSE);
  ibv_qp_attr rts{};
  rts.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(api().cm_init_qp_attr(id, &rts, &mask), 0);
  EXPECT_EQ(mask, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                      IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT);
  EXPECT_EQ(rts.sq_psn, rtr.rq_psn);
}

TEST_P(Connect, DcTrafficFlowsOverWhatTheHandshakeCarried) {
  PROVES(21, 82);
  // As a program does it: target numbers and keys in the private data, reserved numbers for the CM.
  Node sender(bed()), target(bed(), OnHost(1));
  const Address real = target.address();
  rdma_cm_id* id = Resolved();
  const CmEvent request = Request(id);
  uint32_t offer[4] = {real.dctn, static_cast<uint32_t>(real.dc_key),
                       static_cast<uint32_t>(real.dc_key >> 32), 0};
  ASSERT_EQ(server_->Accept(request.id, kServerQp,
                            std::string(reinterpret_cast<const char*>(offer), sizeof(offer))),
            0);
  const CmEvent response = client_->Next();
  std::memcpy(offer, response.data.data(), sizeof(offer));
  ibv_qp_attr rtr{};
  int mask = 0;
  rtr.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(api().cm_init_qp_attr(id, &rtr, &mask), 0);
  ASSERT_EQ(api().cm_establish(id), 0);
  EXPECT_EQ(server_->Next().type, RDMA_CM_EVENT_ESTABLISHED);
  const Address to{
      .path = rtr.ah_attr, .dctn = offer[0], .dc_key = offer[1] | uint64_t{offer[2]} << 32};
  ASSERT_EQ(sender.Post(to, {.text = "by private data"}), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "by private data");
}

TEST_P(Connect, DisconnectTouchesNoExternalQueuePair) {
  PROVES(175);
  Node sender(bed()), target(bed(), OnHost(1));
  const CmConnection made = Up();
  ASSERT_EQ(api().cm_disconnect(made.client), 0);
  EXPECT_EQ(server_->Next().type, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_EQ(sender.Post(target.address(), {.text = "after the goodbye"}), 0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "after the goodbye");
  EXPECT_EQ(sender.QueryState(sender.dci), IBV_QPS_RTS);
  EXPECT_EQ(target.QueryState(target.dct), IBV_QPS_RTR);
}

// And an error of a queue pair ends no connection.
TEST_P(Connect, FailedQueuePairEndsNoConnection) {
  PROVES(175);
  Node sender(bed(), {.streams = false}), target(bed(), OnHost(1));
  Up();
  ASSERT_EQ(
      sender.Post(target.address(), {.opcode = IBV_WR_RDMA_WRITE, .text = "x", .rkey = 0xffffff01}),
      0);
  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_REM_ACCESS_ERR);
  bed().Await("the error state", [&] { return sender.QueryState(sender.dci) == IBV_QPS_ERR; });
  EXPECT_TRUE(client_->Quiet());
  EXPECT_TRUE(server_->Quiet());
}

TEST_P(Connect, NumbersAreCutTo24Bits) {
  PROVES(115);
  rdma_cm_id* id = Resolved();
  ASSERT_EQ(client_->Connect(id, 0x7f000000 | kClientQp, ""), 0);
  const CmEvent request = server_->Next();
  EXPECT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(request.qp_num, kClientQp);
}

}  // namespace
}  // namespace sluice::conformance
