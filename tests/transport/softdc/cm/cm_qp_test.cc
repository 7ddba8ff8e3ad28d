// SPDX-License-Identifier: Apache-2.0
//
// Queue pairs of an id's own, on a device that notes what is asked of it.
#include "transport/softdc/cm/cm_qp.h"

#include <optional>

#include "tests/transport/softdc/cm/cm_fixture.h"
#include "transport/verbs/verbs_api.h"

namespace sluice::softdc::cm {
namespace cm_qp_test {

struct Transition {
  ibv_qp_state to;
  int mask;
  ibv_qp_attr attr;
};

// One device, of which everything may be asked but moving data.
class FakeDevice {
 public:
  FakeDevice() {
    current_ = this;
    context_.sz = sizeof(context_);
    context_.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    context_.create_qp_ex = [](ibv_context* context, ibv_qp_init_attr_ex* attr) -> ibv_qp* {
      if (current_->refuse_qp) {
        errno = ENOMEM;
        return nullptr;
      }
      ibv_qp* const qp = &current_->qps_.emplace_back();
      qp->context = context;
      qp->pd = attr->pd;
      qp->qp_num = current_->next_number_++;
      attr->cap.max_send_wr *= 2;  // as devices round up
      ++current_->live_qps;
      return qp;
    };
    pd_.context = &context_.context;
    api_.query_device = [](ibv_context*, ibv_device_attr* attr) {
      *attr = {};
      attr->max_qp_rd_atom = 4;
      return 0;
    };
    api_.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
      if (attr->qp_state == current_->refused_state) return EINVAL;
      qp->state = attr->qp_state;
      current_->transitions.push_back({attr->qp_state, mask, *attr});
      return 0;
    };
    api_.destroy_qp = [](ibv_qp*) { return --current_->live_qps, 0; };
    api_.create_comp_channel = [](ibv_context*) {
      ++current_->live_channels;
      return &current_->channel_;
    };
    api_.destroy_comp_channel = [](ibv_comp_channel*) { return --current_->live_channels, 0; };
    api_.create_cq = [](ibv_context*, int, void*, ibv_comp_channel*, int) {
      ++current_->live_cqs;
      return &current_->cq_;
    };
    api_.destroy_cq = [](ibv_cq*) { return --current_->live_cqs, 0; };
  }

  DeviceHooks Hooks() {
    return {[this] { return &context_.context; }, [this] { return &pd_; }, 0x5d0c, &api_};
  }

  std::vector<ibv_qp_state> States() const {
    std::vector<ibv_qp_state> states;
    for (const Transition& transition : transitions) states.push_back(transition.to);
    return states;
  }

  ibv_cq* cq() { return &cq_; }

  std::vector<Transition> transitions;
  int live_qps = 0, live_channels = 0, live_cqs = 0;
  bool refuse_qp = false;
  std::optional<ibv_qp_state> refused_state;

 private:
  static FakeDevice* current_;
  verbs_context context_{};
  ibv_pd pd_{};
  ibv_cq cq_{};
  ibv_comp_channel channel_{};
  std::deque<ibv_qp> qps_;
  uint32_t next_number_ = 0x100;
  verbs::VerbsApi api_{};
};
FakeDevice* FakeDevice::current_ = nullptr;

class CmQpTest : public CmTest {
 protected:
  CmQpTest() {
    client = std::make_unique<Side>(device.Hooks());
    server = std::make_unique<Side>(device.Hooks());
  }

  ibv_qp_init_attr Attr() {
    ibv_qp_init_attr attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.cap.max_send_wr = 8;
    attr.send_cq = attr.recv_cq = device.cq();
    return attr;
  }

  // Both ends with queue pairs, the request in the server's hands.
  Connection Requested() {
    Connection made;
    made.client = Resolved(CmTest::Listen());
    ibv_qp_init_attr attr = Attr();
    EXPECT_EQ(create_qp(made.client, nullptr, &attr), 0);
    rdma_conn_param param{};
    param.responder_resources = 3;
    param.initiator_depth = 2;
    param.retry_count = 5;
    EXPECT_EQ(connect(made.client, &param), 0);
    const Seen request = server->Next();
    EXPECT_EQ(request.conn.qp_num, made.client->qp->qp_num);  // not what the parameters say
    made.server = request.id;
    attr = Attr();
    EXPECT_EQ(create_qp(made.server, nullptr, &attr), 0);
    device.transitions.clear();
    return made;
  }

  FakeDevice device;
};

TEST_F(CmQpTest, CreateMovesToInitAndTellsTheRealCapacities) {
  rdma_cm_id* id = Resolved(CmTest::Listen());
  ibv_qp_init_attr attr = Attr();
  ASSERT_EQ(create_qp(id, nullptr, &attr), 0);
  ASSERT_NE(id->qp, nullptr);
  EXPECT_EQ(attr.cap.max_send_wr, 16u);
  ASSERT_EQ(device.States(), std::vector{IBV_QPS_INIT});
  EXPECT_EQ(device.transitions[0].mask, 0x39);
  EXPECT_EQ(create_qp(id, nullptr, &attr), -1);  // one is enough
  EXPECT_EQ(errno, EINVAL);
  destroy_qp(id);
  EXPECT_EQ(id->qp, nullptr);
  EXPECT_EQ(device.live_qps, 0);
  destroy_qp(id);
}

TEST_F(CmQpTest, CreateWithoutQueuesMakesThemAndDestroyEndsThem) {
  rdma_cm_id* id = Resolved(CmTest::Listen());
  ibv_qp_init_attr attr = Attr();
  attr.send_cq = attr.recv_cq = nullptr;
  ASSERT_EQ(create_qp(id, nullptr, &attr), 0);
  EXPECT_NE(id->send_cq, nullptr);
  EXPECT_NE(id->recv_cq_channel, nullptr);
  EXPECT_EQ(device.live_cqs, 2);
  destroy_qp(id);
  EXPECT_EQ(id->send_cq, nullptr);
  EXPECT_EQ(device.live_cqs, 0);
  EXPECT_EQ(device.live_channels, 0);
}

TEST_F(CmQpTest, CreateThatFailsLeavesNothing) {
  ibv_qp_init_attr attr = Attr();
  rdma_cm_id* unresolved = client->NewId();
  EXPECT_EQ(create_qp(unresolved, nullptr, &attr), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_cm_id* id = Resolved(CmTest::Listen());
  EXPECT_EQ(create_qp(id, nullptr, nullptr), -1);
  attr.qp_type = IBV_QPT_UD;
  EXPECT_EQ(create_qp(id, nullptr, &attr), -1);
  EXPECT_EQ(errno, EINVAL);
  attr = Attr();
  attr.send_cq = nullptr;
  device.refuse_qp = true;
  EXPECT_EQ(create_qp(id, nullptr, &attr), -1);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(id->qp, nullptr);
  EXPECT_EQ(device.live_cqs, 0);
  device.refuse_qp = false;
  device.refused_state = IBV_QPS_INIT;
  attr = Attr();
  EXPECT_EQ(create_qp(id, nullptr, &attr), -1);
  EXPECT_EQ(id->qp, nullptr);
  EXPECT_EQ(device.live_qps, 0);
}

TEST_F(CmQpTest, AcceptAndResponseMakeBothReadyAndBothAreEstablished) {
  const Connection made = Requested();
  rdma_conn_param param{};
  param.responder_resources = 2;
  param.initiator_depth = 3;
  ASSERT_EQ(accept(made.server, &param), 0);
  EXPECT_EQ(device.States(), (std::vector{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}));
  EXPECT_EQ(device.transitions[1].attr.dest_qp_num, made.client->qp->qp_num);
  EXPECT_EQ(device.transitions[1].attr.max_dest_rd_atomic, 2);
  EXPECT_EQ(device.transitions[2].attr.max_rd_atomic, 3);
  EXPECT_EQ(device.transitions[2].attr.retry_cnt, 5);
  device.transitions.clear();

  const Seen established = client->Next();  // not CONNECT_RESPONSE: the id has a queue pair
  EXPECT_EQ(established.type, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(device.States(), (std::vector{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}));
  EXPECT_EQ(device.transitions[1].attr.dest_qp_num, made.server->qp->qp_num);
  EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(establish(made.client), -1);  // only for external ones
  EXPECT_EQ(errno, EINVAL);

  device.transitions.clear();
  ASSERT_EQ(disconnect(made.client), 0);
  EXPECT_EQ(device.States(), std::vector{IBV_QPS_ERR});
  EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(made.server->qp->state, IBV_QPS_RTS);  // until its own disconnect
  ASSERT_EQ(disconnect(made.server), 0);
  EXPECT_EQ(made.server->qp->state, IBV_QPS_ERR);
  client->Next();
  destroy_qp(made.client);
  destroy_qp(made.server);
}

TEST_F(CmQpTest, ExternalQueuePairIsNotTouchedByDisconnect) {
  device.transitions.clear();
  const Connection made = Establish(CmTest::Listen(), 1, 2);
  ASSERT_EQ(disconnect(made.client), 0);
  server->Next();
  EXPECT_TRUE(device.transitions.empty());
}

TEST_F(CmQpTest, RejectionPutsItIntoError) {
  const Connection made = Requested();
  ASSERT_EQ(reject(made.server, nullptr, 0), 0);
  EXPECT_EQ(client->Next().type, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(made.client->qp->state, IBV_QPS_ERR);
  destroy_qp(made.client);
  destroy_qp(made.server);
}

TEST_F(CmQpTest, ResponseThatTheQueuePairCannotFollowIsAConnectError) {
  const Connection made = Requested();
  rdma_conn_param param{};
  ASSERT_EQ(accept(made.server, &param), 0);
  device.refused_state = IBV_QPS_RTR;
  const Seen error = client->Next();
  EXPECT_EQ(error.type, RDMA_CM_EVENT_CONNECT_ERROR);
  EXPECT_EQ(error.status, -EINVAL);
  destroy_qp(made.client);
  destroy_qp(made.server);
}

TEST_F(CmQpTest, LimitsAreTheDevices) {
  rdma_cm_id* id = Resolved(CmTest::Listen());
  rdma_conn_param param{};
  param.qp_num = 1;
  param.responder_resources = 5;
  EXPECT_EQ(connect(id, &param), -1);
  EXPECT_EQ(errno, EINVAL);
  param.responder_resources = RDMA_MAX_RESP_RES;
  param.initiator_depth = RDMA_MAX_INIT_DEPTH;
  ASSERT_EQ(connect(id, &param), 0);
  EXPECT_EQ(server->Next().conn.responder_resources, 4);
}

TEST_F(CmQpTest, DatagramIdsHaveTheirsReadyAtOnce) {
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(create_id(client->channel, &id, nullptr, RDMA_PS_UDP), 0);
  sockaddr_in to = Ipv4("127.0.0.1", 1);
  ASSERT_EQ(resolve_addr(id, nullptr, Generic(&to), 1), 0);
  client->Next();
  ibv_qp_init_attr attr = Attr();
  attr.qp_type = IBV_QPT_UD;
  device.transitions.clear();
  ASSERT_EQ(create_qp(id, nullptr, &attr), 0);
  EXPECT_EQ(device.States(), (std::vector{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}));
  EXPECT_EQ(device.transitions[0].mask,
            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  EXPECT_EQ(device.transitions[0].attr.qkey, 0x01234567u);
  EXPECT_EQ(device.transitions[2].mask, IBV_QP_STATE | IBV_QP_SQ_PSN);
  destroy_qp(id);
  EXPECT_EQ(destroy_id(id), 0);
}

}  // namespace cm_qp_test
}  // namespace sluice::softdc::cm
