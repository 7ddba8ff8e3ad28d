// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/softdc/conformance/cm_end.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "gtest/gtest.h"

namespace sluice::conformance {
namespace {

constexpr int kResolveMs = 2000;
constexpr uint8_t kShortestAckTimeout = 1;  // 8 us: timewait as short as it gets

void Done(int result, const char* what) {
  if (result != 0) throw std::runtime_error(std::string(what) + " failed: " + std::strerror(errno));
}

rdma_conn_param Parameters(uint32_t qp_num, const std::string& data) {
  rdma_conn_param param{};
  param.qp_num = qp_num;
  param.private_data = data.empty() ? nullptr : data.data();
  param.private_data_len = static_cast<uint8_t>(data.size());
  param.responder_resources = 1;
  param.initiator_depth = 1;
  param.retry_count = 7;
  param.rnr_retry_count = 7;
  return param;
}

}  // namespace

CmEnd::CmEnd(Bed& bed, int host) : bed(bed), api(bed.api()), host(host) {
  channel = bed.CreateEventChannel(host);
  if (channel == nullptr) throw std::runtime_error("no event channel");
  const int flags = fcntl(channel->fd, F_GETFL);
  Done(fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK), "fcntl");
}

CmEnd::~CmEnd() {
  for (rdma_cm_id* id : ids_) EXPECT_EQ(api.cm_destroy_id(id), 0);
  api.cm_destroy_event_channel(channel);
}

rdma_cm_id* CmEnd::NewId() {
  rdma_cm_id* id = nullptr;
  Done(api.cm_create_id(channel, &id, this, RDMA_PS_TCP), "create_id");
  ids_.push_back(id);
  return id;
}

void CmEnd::Destroy(rdma_cm_id* id) {
  std::erase(ids_, id);
  EXPECT_EQ(api.cm_destroy_id(id), 0);
}

rdma_cm_id* CmEnd::Listen() {
  rdma_cm_id* id = NewId();
  sockaddr_in any{};
  any.sin_family = AF_INET;
  Done(api.cm_bind_addr(id, reinterpret_cast<sockaddr*>(&any)), "bind_addr");
  Done(api.cm_listen(id, 16), "listen");
  return id;
}

rdma_cm_id* CmEnd::ResolvedTo(int to_host, uint16_t port_network_order) {
  rdma_cm_id* id = NewId();
  uint8_t timeout = kShortestAckTimeout;
  Done(api.cm_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout)),
       "set_option");
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = port_network_order;
  if (inet_pton(AF_INET, bed.IpOf(to_host).c_str(), &to.sin_addr) != 1) {
    throw std::runtime_error("not an address");
  }
  Done(api.cm_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), kResolveMs),
       "resolve_addr");
  if (Next().type != RDMA_CM_EVENT_ADDR_RESOLVED) throw std::runtime_error("not ADDR_RESOLVED");
  Done(api.cm_resolve_route(id, kResolveMs), "resolve_route");
  if (Next().type != RDMA_CM_EVENT_ROUTE_RESOLVED) throw std::runtime_error("not ROUTE_RESOLVED");
  return id;
}

rdma_cm_id* CmEnd::Resolved(const CmEnd& server, rdma_cm_id* listener) {
  return ResolvedTo(server.host, api.cm_get_src_port(listener));
}

int CmEnd::Connect(rdma_cm_id* id, uint32_t qp_num, const std::string& data) {
  rdma_conn_param param = Parameters(qp_num, data);
  return api.cm_connect(id, &param);
}

int CmEnd::Accept(rdma_cm_id* id, uint32_t qp_num, const std::string& data) {
  rdma_conn_param param = Parameters(qp_num, data);
  return api.cm_accept(id, &param);
}

bool CmEnd::Take(CmEvent* event) {
  rdma_cm_event* seen = nullptr;
  if (api.cm_get_cm_event(channel, &seen) != 0) {
    if (errno != EAGAIN) throw std::runtime_error("get_cm_event failed");
    return false;
  }
  *event = {.type = seen->event,
            .status = seen->status,
            .id = seen->id,
            .listener = seen->listen_id,
            .qp_num = seen->param.conn.qp_num};
  if (seen->param.conn.private_data != nullptr) {
    event->data.assign(static_cast<const char*>(seen->param.conn.private_data),
                       seen->param.conn.private_data_len);
  }
  if (seen->event == RDMA_CM_EVENT_CONNECT_REQUEST) ids_.push_back(seen->id);
  EXPECT_EQ(api.cm_ack_cm_event(seen), 0);
  return true;
}

CmEvent CmEnd::Next() {
  CmEvent event;
  bed.Await("a CM event", [&] { return Take(&event); });
  return event;
}

bool CmEnd::Quiet() {
  CmEvent event;
  return !Take(&event);
}

CmConnection Establish(CmEnd& client, uint32_t client_qp_num, CmEnd& server, rdma_cm_id* listener,
                       uint32_t server_qp_num) {
  CmConnection made;
  made.client = client.Resolved(server, listener);
  EXPECT_EQ(client.Connect(made.client, client_qp_num), 0);
  const CmEvent request = server.Next();
  EXPECT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
  made.server = request.id;
  EXPECT_EQ(server.Accept(made.server, server_qp_num), 0);
  EXPECT_EQ(client.Next().type, RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_EQ(client.api.cm_establish(made.client), 0);
  EXPECT_EQ(server.Next().type, RDMA_CM_EVENT_ESTABLISHED);
  return made;
}

}  // namespace sluice::conformance
