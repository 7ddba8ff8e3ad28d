// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/cm/sim_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "gtest/gtest.h"

namespace sluice::cm {
namespace {

using softdc::sim::Simulation;

constexpr int kResolveMs = 1000;

}  // namespace

SimPeer::SimPeer(Simulation& simulation, uint32_t node)
    : simulation_(simulation), node_(node), api_(Simulation::Verbs()) {
  const Simulation::As as(simulation_, node_);
  channel_ = api_.cm_create_event_channel();
}

SimPeer::~SimPeer() {
  const Simulation::As as(simulation_, node_);
  for (rdma_cm_id* id : ids_) api_.cm_destroy_id(id);
  api_.cm_destroy_event_channel(channel_);
}

void SimPeer::Listen() {
  const Simulation::As as(simulation_, node_);
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(api_.cm_create_id(channel_, &id, nullptr, RDMA_PS_TCP), 0);
  ids_.push_back(id);
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  any.sin_port = htons(kSimPort);
  ASSERT_EQ(api_.cm_bind_addr(id, reinterpret_cast<sockaddr*>(&any)), 0);
  ASSERT_EQ(api_.cm_listen(id, 0), 0);
}

void SimPeer::Connect(uint32_t to, uint32_t number) {
  const Simulation::As as(simulation_, node_);
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(api_.cm_create_id(channel_, &id, nullptr, RDMA_PS_TCP), 0);
  ids_.push_back(id);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(kSimPort);
  address.sin_addr = Simulation::Address(to);
  ASSERT_EQ(api_.cm_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&address), kResolveMs),
            0);
  ASSERT_EQ(api_.cm_resolve_route(id, kResolveMs), 0);
  rdma_conn_param param = {};
  param.qp_num = number;
  param.retry_count = 7;
  ASSERT_EQ(api_.cm_connect(id, &param), 0);
}

void SimPeer::Poll() {
  const Simulation::As as(simulation_, node_);
  rdma_cm_event* event = nullptr;
  while (api_.cm_get_cm_event(channel_, &event) == 0) {
    rdma_cm_id* id = event->id;
    const rdma_cm_event_type type = event->event;
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) numbers.push_back(event->param.conn.qp_num);
    api_.cm_ack_cm_event(event);
    switch (type) {
      case RDMA_CM_EVENT_CONNECT_REQUEST: {
        ids_.push_back(id);
        requests.push_back(id);
        if (!accepts) break;
        rdma_conn_param param = {};
        param.qp_num = next_number_++;
        api_.cm_accept(id, &param);
        break;
      }
      case RDMA_CM_EVENT_CONNECT_RESPONSE:
        ++responses;
        break;
      case RDMA_CM_EVENT_ESTABLISHED:
        ++established;
        break;
      case RDMA_CM_EVENT_DISCONNECTED:
        ++disconnected;
        if (answers_disconnects) api_.cm_disconnect(id);
        break;
      default:
        break;
    }
  }
}

void SimPeer::Disconnect(rdma_cm_id* id) {
  const Simulation::As as(simulation_, node_);
  EXPECT_EQ(api_.cm_disconnect(id), 0);
}

}  // namespace sluice::cm
