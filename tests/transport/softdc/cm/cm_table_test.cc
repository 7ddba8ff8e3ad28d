// SPDX-License-Identifier: Apache-2.0
//
// RDMA_CM as programs reach it: through softdc's table, with the device, engine and timers of
// production.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "transport/softdc/verbs.h"

namespace sluice::softdc {
namespace cm_table_test {

class CmTableTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("SOFTDC_DOMAIN", ("table" + std::to_string(getpid())).c_str(), 1);
  }

  void SetUp() override {
    channel_ = api_.cm_create_event_channel();
    ASSERT_NE(channel_, nullptr);
  }
  void TearDown() override { api_.cm_destroy_event_channel(channel_); }

  rdma_cm_id* NewId() {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(api_.cm_create_id(channel_, &id, nullptr, RDMA_PS_TCP), 0);
    return id;
  }

  // Waits for the next event and returns its id, or nullptr if it is another one.
  rdma_cm_id* Expect(rdma_cm_event_type type) {
    pollfd readable{.fd = channel_->fd, .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, 20'000) != 1) return nullptr;
    rdma_cm_event* event = nullptr;
    if (api_.cm_get_cm_event(channel_, &event) != 0) return nullptr;
    EXPECT_EQ(event->event, type);
    rdma_cm_id* const id = event->event == type ? event->id : nullptr;
    api_.cm_ack_cm_event(event);
    return id;
  }

  void Resolve(rdma_cm_id* id, uint16_t port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = port;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(api_.cm_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 1000), 0);
    ASSERT_EQ(Expect(RDMA_CM_EVENT_ADDR_RESOLVED), id);
    ASSERT_EQ(api_.cm_resolve_route(id, 1000), 0);
    ASSERT_EQ(Expect(RDMA_CM_EVENT_ROUTE_RESOLVED), id);
  }

  const verbs::VerbsApi& api_ = Verbs();
  rdma_event_channel* channel_ = nullptr;
};

TEST_F(CmTableTest, IdsOfBothSidesAreOnTheDeviceAndConnectWithReservedNumbers) {
  rdma_cm_id* listener = NewId();
  ASSERT_EQ(api_.cm_listen(listener, 8), 0);
  rdma_cm_id* client = NewId();
  EXPECT_EQ(client->verbs, nullptr);
  uint8_t short_timewait = 8;
  ASSERT_EQ(api_.cm_set_option(client, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &short_timewait,
                               sizeof(short_timewait)),
            0);
  Resolve(client, api_.cm_get_src_port(listener));
  ASSERT_NE(client->verbs, nullptr);
  ASSERT_NE(client->pd, nullptr);
  EXPECT_EQ(client->pd->context, client->verbs);
  EXPECT_STREQ(api_.get_device_name(client->verbs->device), "softdc0");

  rdma_conn_param param{};
  uint32_t client_qpn = 0, server_qpn = 0;
  ASSERT_EQ(api_.dv_reserved_qpn_alloc(client->verbs, &client_qpn), 0);
  param.qp_num = client_qpn;
  ASSERT_EQ(api_.cm_connect(client, &param), 0);
  rdma_cm_id* server = Expect(RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(server->verbs, client->verbs);
  EXPECT_EQ(server->port_num, 1);
  ASSERT_EQ(api_.dv_reserved_qpn_alloc(server->verbs, &server_qpn), 0);
  EXPECT_NE(server_qpn, client_qpn);
  param.qp_num = server_qpn;
  ASSERT_EQ(api_.cm_accept(server, &param), 0);
  ASSERT_EQ(Expect(RDMA_CM_EVENT_CONNECT_RESPONSE), client);

  // The address vector that the CM gives is one that the device takes.
  ibv_qp_attr attr{};
  int mask = 0;
  attr.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(api_.cm_init_qp_attr(client, &attr, &mask), 0);
  EXPECT_EQ(attr.dest_qp_num, server_qpn);
  ibv_ah* ah = api_.create_ah(client->pd, &attr.ah_attr);
  ASSERT_NE(ah, nullptr) << errno;
  EXPECT_EQ(api_.destroy_ah(ah), 0);

  ASSERT_EQ(api_.cm_establish(client), 0);
  ASSERT_EQ(Expect(RDMA_CM_EVENT_ESTABLISHED), server);
  ASSERT_EQ(api_.cm_disconnect(client), 0);
  ASSERT_EQ(Expect(RDMA_CM_EVENT_DISCONNECTED), server);
  ASSERT_EQ(api_.cm_disconnect(server), 0);
  ASSERT_EQ(Expect(RDMA_CM_EVENT_DISCONNECTED), client);
  // Timers of production; the option has made it a quarter of a second.
  EXPECT_NE(Expect(RDMA_CM_EVENT_TIMEWAIT_EXIT), nullptr);
  EXPECT_NE(Expect(RDMA_CM_EVENT_TIMEWAIT_EXIT), nullptr);
  EXPECT_EQ(api_.dv_reserved_qpn_dealloc(client->verbs, client_qpn), 0);
  EXPECT_EQ(api_.dv_reserved_qpn_dealloc(server->verbs, server_qpn), 0);
  for (rdma_cm_id* id : {client, server, listener}) EXPECT_EQ(api_.cm_destroy_id(id), 0);
}

TEST_F(CmTableTest, DeviceLimitsAreThoseTheCmChecks) {
  rdma_cm_id* id = NewId();
  Resolve(id, htons(1));
  ibv_device_attr device{};
  ASSERT_EQ(api_.query_device(id->verbs, &device), 0);
  rdma_conn_param param{};
  param.responder_resources = static_cast<uint8_t>(device.max_qp_rd_atom + 1);
  EXPECT_EQ(api_.cm_connect(id, &param), -1);
  EXPECT_EQ(errno, EINVAL);
  param.responder_resources = static_cast<uint8_t>(device.max_qp_rd_atom);
  ASSERT_EQ(api_.cm_connect(id, &param), 0);
  EXPECT_EQ(Expect(RDMA_CM_EVENT_REJECTED), id);  // nobody listens
  EXPECT_EQ(api_.cm_destroy_id(id), 0);
}

}  // namespace cm_table_test
}  // namespace sluice::softdc
