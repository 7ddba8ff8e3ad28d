// SPDX-License-Identifier: Apache-2.0
//
// Speaks to descriptors of RDMA_CM as librdmacm does, both ends in one process, with timers that
// move by hand.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_UCMA_UCMA_FIXTURE_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_UCMA_UCMA_FIXTURE_H_

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/transport/softdc/cm/cm_fixture.h"
#include "transport/softdc/ucma/abi.h"
#include "transport/softdc/ucma/ucma.h"

namespace sluice::softdc::ucma {

using cm::Generic;
using cm::Ipv4;

constexpr uint64_t kGuid = 0x5d0c'0000'1111'2222;

// One open descriptor.
class Descriptor {
 public:
  Descriptor() : fd_(Open()) { EXPECT_GE(fd_, 0); }
  ~Descriptor() {
    if (fd_ >= 0) CloseNow();
  }
  Descriptor(const Descriptor&) = delete;

  int fd() const { return fd_; }
  void CloseNow() { EXPECT_EQ(Close(std::exchange(fd_, -1)), 0); }

  // 0 or the errno.
  template <typename Structure>
  int Call(uint32_t command, const Structure& structure, size_t out = 0) {
    struct {
      abi::rdma_ucm_cmd_hdr header;
      Structure body;
    } __attribute__((packed)) whole;
    whole.header = {command, sizeof(Structure), static_cast<uint16_t>(out)};
    whole.body = structure;
    return Raw(&whole, sizeof(whole));
  }

  int Raw(const void* bytes, size_t length) {
    const ssize_t written = Write(fd_, bytes, length);
    if (written < 0) return errno;
    EXPECT_EQ(written, static_cast<ssize_t>(length));
    return 0;
  }

  uint32_t Create(uint64_t uid, uint16_t ps = abi::RDMA_PS_TCP) {
    abi::rdma_ucm_create_id given{};
    abi::rdma_ucm_create_id_resp response{};
    given.uid = uid;
    given.response = reinterpret_cast<uintptr_t>(&response);
    given.ps = ps;
    given.qp_type = IBV_QPT_RC;
    EXPECT_EQ(Call(abi::RDMA_USER_CM_CMD_CREATE_ID, given, sizeof(response)), 0);
    return response.id;
  }

  int Destroy(uint32_t id, uint32_t* reported = nullptr) {
    abi::rdma_ucm_destroy_id given{};
    abi::rdma_ucm_destroy_id_resp response{};
    given.response = reinterpret_cast<uintptr_t>(&response);
    given.id = id;
    const int error = Call(abi::RDMA_USER_CM_CMD_DESTROY_ID, given, sizeof(response));
    if (reported != nullptr) *reported = response.events_reported;
    return error;
  }

  int Bind(uint32_t id, sockaddr_in address) {
    abi::rdma_ucm_bind given{};
    given.id = id;
    given.addr_size = sizeof(address);
    std::memcpy(&given.addr, &address, sizeof(address));
    return Call(abi::RDMA_USER_CM_CMD_BIND, given);
  }

  int ResolveAddr(uint32_t id, sockaddr_in address) {
    abi::rdma_ucm_resolve_addr given{};
    given.id = id;
    given.timeout_ms = 1000;
    given.dst_size = sizeof(address);
    std::memcpy(&given.dst_addr, &address, sizeof(address));
    return Call(abi::RDMA_USER_CM_CMD_RESOLVE_ADDR, given);
  }

  int ResolveRoute(uint32_t id) {
    return Call(abi::RDMA_USER_CM_CMD_RESOLVE_ROUTE, abi::rdma_ucm_resolve_route{id, 1000});
  }

  int Listen(uint32_t id, uint32_t backlog) {
    return Call(abi::RDMA_USER_CM_CMD_LISTEN, abi::rdma_ucm_listen{id, backlog});
  }

  static abi::rdma_ucm_conn_param Param(uint32_t qp_num, const std::string& data = "") {
    abi::rdma_ucm_conn_param param{};
    param.qp_num = qp_num;
    param.retry_count = 7;
    param.rnr_retry_count = 7;
    param.valid = 1;
    param.private_data_len = static_cast<uint8_t>(data.size());
    std::memcpy(param.private_data, data.data(), data.size());
    return param;
  }

  int Connect(uint32_t id, uint32_t qp_num, const std::string& data = "") {
    abi::rdma_ucm_connect given{};
    given.conn_param = Param(qp_num, data);
    given.id = id;
    return Call(abi::RDMA_USER_CM_CMD_CONNECT, given);
  }

  int Accept(uint32_t id, uint64_t uid, uint32_t qp_num, const std::string& data = "") {
    abi::rdma_ucm_accept given{};
    given.uid = uid;
    given.conn_param = Param(qp_num, data);
    given.id = id;
    return Call(abi::RDMA_USER_CM_CMD_ACCEPT, given);
  }

  // The active side's answer: an accept without parameters.
  int Establish(uint32_t id) {
    abi::rdma_ucm_accept given{};
    given.id = id;
    return Call(abi::RDMA_USER_CM_CMD_ACCEPT, given);
  }

  int Disconnect(uint32_t id) {
    return Call(abi::RDMA_USER_CM_CMD_DISCONNECT, abi::rdma_ucm_disconnect{id});
  }

  int GetEvent(abi::rdma_ucm_event_resp* response, size_t out = sizeof(abi::rdma_ucm_event_resp)) {
    abi::rdma_ucm_get_event given{reinterpret_cast<uintptr_t>(response)};
    return Call(abi::RDMA_USER_CM_CMD_GET_EVENT, given, out);
  }

  // Waits, bounded, only so that a broken build fails instead of hanging.
  abi::rdma_ucm_event_resp Next() {
    abi::rdma_ucm_event_resp response{};
    response.event = ~0u;
    pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, 20'000) != 1) {
      ADD_FAILURE() << "no event came";
      return response;
    }
    EXPECT_EQ(GetEvent(&response), 0);
    return response;
  }

  bool Readable() const {
    pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
    return poll(&readable, 1, 0) == 1;
  }

  template <typename Response>
  int Query(uint32_t id, uint32_t option, Response* response, size_t out = sizeof(Response)) {
    abi::rdma_ucm_query given{};
    given.response = reinterpret_cast<uintptr_t>(response);
    given.id = id;
    given.option = option;
    return Call(abi::RDMA_USER_CM_CMD_QUERY, given, out);
  }

 private:
  int fd_;
};

// Both ends of what a test does are descriptors of one engine, as on a host.
class UcmaTest : public ::testing::Test {
 protected:
  UcmaTest() {
    static std::atomic<int> next{0};
    const std::string domain = "u" + std::to_string(getpid()) + "." + std::to_string(next++);
    setenv("SOFTDC_DOMAIN", domain.c_str(), 1);
    engine = std::make_unique<cm::Engine>(cm::DeviceHooks{{}, {}, kGuid, nullptr}, &timers);
    engine->SetFabric(std::make_unique<cm::ShmFabric>(&Loop::Get(), engine.get()));
    cm::UseEngine(engine.get());
    server = std::make_unique<Descriptor>();
    client = std::make_unique<Descriptor>();
  }
  ~UcmaTest() override {
    client.reset();
    server.reset();
    cm::UseEngine(nullptr);
  }

  // Returns the port; `listener` is its id.
  uint16_t Listen(uint32_t backlog = 8, uint16_t ps = abi::RDMA_PS_TCP) {
    listener = server->Create(kListenerUid, ps);
    EXPECT_EQ(server->Bind(listener, Ipv4("0.0.0.0", 0)), 0);
    EXPECT_EQ(server->Listen(listener, backlog), 0);
    abi::rdma_ucm_query_addr_resp where{};
    EXPECT_EQ(server->Query(listener, abi::RDMA_USER_CM_QUERY_ADDR, &where), 0);
    sockaddr_in address;
    std::memcpy(&address, &where.src_addr, sizeof(address));
    return ntohs(address.sin_port);
  }

  // An id with `uid` that is ready to connect.
  uint32_t Resolved(uint16_t port, uint64_t uid = kClientUid, uint16_t ps = abi::RDMA_PS_TCP) {
    const uint32_t id = client->Create(uid, ps);
    EXPECT_EQ(client->ResolveAddr(id, Ipv4("127.0.0.1", port)), 0);
    EXPECT_EQ(client->Next().event, RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(client->ResolveRoute(id), 0);
    EXPECT_EQ(client->Next().event, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
  }

  struct Connection {
    uint32_t client_id;
    uint32_t server_id;
  };
  Connection Establish(uint16_t port) {
    Connection made{};
    made.client_id = Resolved(port);
    EXPECT_EQ(client->Connect(made.client_id, 11), 0);
    made.server_id = server->Next().id;
    EXPECT_EQ(server->Accept(made.server_id, kServerUid, 22), 0);
    EXPECT_EQ(client->Next().event, RDMA_CM_EVENT_CONNECT_RESPONSE);
    EXPECT_EQ(client->Establish(made.client_id), 0);
    EXPECT_EQ(server->Next().event, RDMA_CM_EVENT_ESTABLISHED);
    return made;
  }

  static constexpr uint64_t kListenerUid = 0xaaaa, kClientUid = 0xcccc, kServerUid = 0xbbbb;

  cm::ManualTimers timers;
  std::unique_ptr<cm::Engine> engine;
  std::unique_ptr<Descriptor> client;
  std::unique_ptr<Descriptor> server;
  uint32_t listener = 0;
};

// UcmaTest under the name of what a test file is about.
class CommandsTest : public UcmaTest {};
class QueryTest : public UcmaTest {};
class FuzzTest : public UcmaTest {};

}  // namespace sluice::softdc::ucma

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_UCMA_UCMA_FIXTURE_H_
