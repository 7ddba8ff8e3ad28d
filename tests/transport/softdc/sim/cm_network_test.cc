// SPDX-License-Identifier: Apache-2.0
//
// RDMA_CM between simulated hosts, through the table: the same engine as everywhere, on virtual
// time, and what the network does to its messages.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/transport/softdc/cm/event_names.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::softdc::sim {
namespace cm_network_test {

constexpr uint16_t kServicePort = 7471;
constexpr int64_t kMinuteNs = 60'000'000'000;

sockaddr_in AddressOf(uint32_t node, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr = Simulation::Address(node);
  return address;
}

// One application on a node: an event channel and the ids made on it.
class End {
 public:
  End(Simulation& simulation, uint32_t node) : simulation_(simulation), node_(node) {
    const Simulation::As as(simulation, node);
    channel_ = api_.cm_create_event_channel();
    EXPECT_NE(channel_, nullptr);
  }
  ~End() {
    for (rdma_cm_id* id : ids_) EXPECT_EQ(api_.cm_destroy_id(id), 0);
    api_.cm_destroy_event_channel(channel_);
  }

  rdma_cm_id* NewId() {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(api_.cm_create_id(channel_, &id, nullptr, RDMA_PS_TCP), 0);
    ids_.push_back(id);
    return id;
  }
  void Listen(uint16_t port) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(port);
    ListenAt(any);
  }
  void ListenAt(sockaddr_in address) {
    rdma_cm_id* id = NewId();
    EXPECT_EQ(api_.cm_bind_addr(id, reinterpret_cast<sockaddr*>(&address)), 0);
    EXPECT_EQ(api_.cm_listen(id, 16), 0);
  }
  // The next event within the limit, acknowledged; "" for none. Its id becomes last().
  std::string Next(int64_t limit_ns = 1'000'000'000) {
    rdma_cm_event* event = nullptr;
    if (!simulation_.RunUntil([&] { return api_.cm_get_cm_event(channel_, &event) == 0; },
                              limit_ns)) {
      return "";
    }
    last_ = event->id;
    status_ = event->status;
    private_data_.clear();
    if (event->param.conn.private_data != nullptr) {
      private_data_ = static_cast<const char*>(event->param.conn.private_data);
    }
    const rdma_cm_event_type type = event->event;
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) ids_.push_back(event->id);
    EXPECT_EQ(api_.cm_ack_cm_event(event), 0);
    return cm::NameOf(type);
  }
  rdma_cm_id* Resolve(uint32_t to) {
    rdma_cm_id* id = NewId();
    sockaddr_in address = AddressOf(to, kServicePort);
    EXPECT_EQ(api_.cm_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&address), 1000), 0);
    EXPECT_EQ(Next(), "ADDR_RESOLVED");
    EXPECT_EQ(api_.cm_resolve_route(id, 1000), 0);
    EXPECT_EQ(Next(), "ROUTE_RESOLVED");
    return id;
  }
  int Connect(rdma_cm_id* id, uint32_t number, const char* text) {
    rdma_conn_param param = Param(number, text);
    return api_.cm_connect(id, &param);
  }
  int Accept(rdma_cm_id* id, uint32_t number, const char* text) {
    rdma_conn_param param = Param(number, text);
    return api_.cm_accept(id, &param);
  }
  const verbs::VerbsApi& api() const { return api_; }
  rdma_cm_id* last() const { return last_; }
  int status() const { return status_; }
  const std::string& private_data() const { return private_data_; }

 private:
  static rdma_conn_param Param(uint32_t number, const char* text) {
    rdma_conn_param param{};
    param.qp_num = number;
    param.private_data = text;
    param.private_data_len = static_cast<uint8_t>(std::strlen(text) + 1);
    param.retry_count = 7;
    return param;
  }

  Simulation& simulation_;
  const uint32_t node_;
  const verbs::VerbsApi& api_ = Simulation::Verbs();
  rdma_event_channel* channel_ = nullptr;
  std::vector<rdma_cm_id*> ids_;
  rdma_cm_id* last_ = nullptr;
  int status_ = 0;
  std::string private_data_;
};

class CmNetworkTest : public ::testing::Test {
 protected:
  void Build(const Options& options) {
    simulation_ = Simulation::Create(options).value();
    client_ = std::make_unique<End>(*simulation_, 0);
    server_ = std::make_unique<End>(*simulation_, 1);
    server_->Listen(kServicePort);
  }
  // From resolve to both sides established.
  rdma_cm_id* Establish() {
    rdma_cm_id* id = client_->Resolve(1);
    EXPECT_EQ(client_->Connect(id, 0x801, "from the client"), 0);
    EXPECT_EQ(server_->Next(kMinuteNs), "CONNECT_REQUEST");
    EXPECT_EQ(server_->private_data(), "from the client");
    EXPECT_EQ(server_->Accept(server_->last(), 0x901, "from the server"), 0);
    EXPECT_EQ(client_->Next(kMinuteNs), "CONNECT_RESPONSE");
    EXPECT_EQ(client_->private_data(), "from the server");
    EXPECT_EQ(client_->api().cm_establish(id), 0);
    EXPECT_EQ(server_->Next(kMinuteNs), "ESTABLISHED");
    return id;
  }

  std::unique_ptr<Simulation> simulation_;
  std::unique_ptr<End> client_;
  std::unique_ptr<End> server_;
};

TEST_F(CmNetworkTest, ConnectionIsMadeAndTornDownInVirtualTime) {
  Build({});
  const int64_t start_ns = simulation_->NowNs();
  rdma_cm_id* id = Establish();
  EXPECT_LT(simulation_->NowNs() - start_ns, 100'000);
  EXPECT_EQ(id->verbs->device, simulation_->Device(0));
  EXPECT_EQ(server_->last()->verbs->device, simulation_->Device(1));
  EXPECT_EQ(client_->api().cm_disconnect(id), 0);
  EXPECT_EQ(server_->Next(), "DISCONNECTED");
  EXPECT_EQ(server_->api().cm_disconnect(server_->last()), 0);
  EXPECT_EQ(client_->Next(), "DISCONNECTED");
  EXPECT_EQ(client_->Next(kMinuteNs), "TIMEWAIT_EXIT");
  EXPECT_EQ(server_->Next(kMinuteNs), "TIMEWAIT_EXIT");
}

TEST_F(CmNetworkTest, NobodyListensIsRejectedWithReason8) {
  Build({.nodes = 3});
  rdma_cm_id* id = client_->Resolve(2);
  ASSERT_EQ(client_->Connect(id, 0x801, "anyone?"), 0);
  EXPECT_EQ(client_->Next(), "REJECTED");
  EXPECT_EQ(client_->status(), 8);
}

TEST_F(CmNetworkTest, AddressOfNoNodeIsNotResolved) {
  Build({});
  rdma_cm_id* id = client_->NewId();
  sockaddr_in nowhere = AddressOf(500, kServicePort);
  const Simulation::As as(*simulation_, 0);
  if (client_->api().cm_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&nowhere), 1000) ==
      0) {
    EXPECT_EQ(client_->Next(), "ADDR_ERROR");
  }
}

TEST_F(CmNetworkTest, LostRequestIsSentAgainByTheEngine) {
  Build({});
  rdma_cm_id* id = client_->Resolve(1);
  simulation_->cm_faults().loss_ppm = 1'000'000;
  ASSERT_EQ(client_->Connect(id, 0x801, "again"), 0);
  EXPECT_EQ(server_->Next(), "");
  simulation_->cm_faults().loss_ppm = 0;
  EXPECT_EQ(server_->Next(kMinuteNs), "CONNECT_REQUEST");
  EXPECT_EQ(server_->private_data(), "again");
}

TEST_F(CmNetworkTest, NodeThatIsDeadForEverIsUnreachableAfterAllAttempts) {
  Build({});
  rdma_cm_id* id = client_->Resolve(1);
  simulation_->Kill(1);
  ASSERT_EQ(client_->Connect(id, 0x801, "hello?"), 0);
  const int64_t start_ns = simulation_->NowNs();
  EXPECT_EQ(client_->Next(10 * kMinuteNs), "UNREACHABLE");
  const Dials::Cm cm;
  EXPECT_GE(simulation_->NowNs() - start_ns, cm.retry_ns * (cm.max_attempts - 1));
}

TEST_F(CmNetworkTest, RejectByPlanGivesItsReason) {
  Build({});
  rdma_cm_id* id = client_->Resolve(1);
  simulation_->cm_faults() = {.reject_ppm = 1'000'000, .reject_reason = 28};
  ASSERT_EQ(client_->Connect(id, 0x801, "no"), 0);
  EXPECT_EQ(client_->Next(), "REJECTED");
  EXPECT_EQ(client_->status(), 28);
  EXPECT_EQ(server_->Next(), "");
}

TEST_F(CmNetworkTest, DelayedAndDoubledMessagesStillConnect) {
  Options options;
  options.faults.cm = {.delay_ppm = 1'000'000, .delay_ns = 50'000'000, .duplicate_ppm = 1'000'000};
  Build(options);
  const int64_t start_ns = simulation_->NowNs();
  Establish();
  EXPECT_GE(simulation_->NowNs() - start_ns, 3 * 50'000'000);
}

TEST_F(CmNetworkTest, KilledPeerIsSeenAtOnceAndSilentHostIsNot) {
  Build({});
  rdma_cm_id* id = Establish();
  simulation_->Kill(1);
  EXPECT_EQ(client_->Next(), "DISCONNECTED");
  EXPECT_EQ(client_->api().cm_disconnect(id), 0);  // or its peer's number counts as in use
  server_.reset();
  simulation_->Revive(1);
  server_ = std::make_unique<End>(*simulation_, 1);
  server_->Listen(kServicePort);
  Establish();
  simulation_->CutLink(0, 1);
  simulation_->Kill(1);
  // Old ids may still leave timewait; nothing says that this connection has ended.
  for (std::string event; !(event = client_->Next(kMinuteNs)).empty();) {
    EXPECT_EQ(event, "TIMEWAIT_EXIT");
  }
}

TEST_F(CmNetworkTest, UnpluggedDeviceIsRemovedFromEachIdAndPeersHearNothing) {
  Build({});
  rdma_cm_id* established = Establish();
  rdma_cm_id* resolved = client_->Resolve(1);
  client_->ListenAt(AddressOf(0, 1234));
  client_->Listen(1235);  // at the wildcard address: on no device
  simulation_->Unplug(0);
  for (int ids = 0; ids < 3; ++ids) {
    EXPECT_EQ(client_->Next(), "DEVICE_REMOVAL");
    EXPECT_EQ(client_->status(), 0);
  }
  EXPECT_EQ(client_->Next(), "");
  // Such ids can be destroyed, and that is all; they still name their device.
  errno = 0;
  EXPECT_EQ(client_->Connect(resolved, 0x802, "late"), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(client_->api().cm_disconnect(established), -1);
  EXPECT_EQ(established->verbs->device, simulation_->Device(0));
  sockaddr_in address = AddressOf(1, kServicePort);
  errno = 0;
  EXPECT_EQ(client_->api().cm_resolve_addr(client_->NewId(), nullptr,
                                           reinterpret_cast<sockaddr*>(&address), 1000),
            -1);
  EXPECT_EQ(errno, ENODEV);
  EXPECT_EQ(server_->Next(kMinuteNs), "");

  simulation_->Plug(0);
  rdma_cm_id* again = client_->Resolve(1);
  EXPECT_NE(again->verbs, established->verbs);
  ASSERT_EQ(client_->Connect(again, 0x803, "again"), 0);
  EXPECT_EQ(server_->Next(kMinuteNs), "CONNECT_REQUEST");
}

TEST_F(CmNetworkTest, ChangedAddressIsToldAndTheConnectionGoesOn) {
  Build({});
  rdma_cm_id* id = Establish();
  simulation_->ChangeAddress(0);
  EXPECT_EQ(client_->Next(), "ADDR_CHANGE");
  EXPECT_EQ(client_->last(), id);
  EXPECT_EQ(client_->Next(), "");
  EXPECT_EQ(server_->Next(), "");
  EXPECT_EQ(client_->api().cm_disconnect(id), 0);
  EXPECT_EQ(server_->Next(), "DISCONNECTED");
}

TEST_F(CmNetworkTest, SameSeedGivesTheSameLogWithConnections) {
  std::vector<std::string> logs;
  for (int run = 0; run < 2; ++run) {
    Options options;
    options.seed = 11;
    options.log = LogMode::kText;
    options.jitter_ns = 5'000;
    options.faults.cm = {.loss_ppm = 100'000, .duplicate_ppm = 200'000};
    Build(options);
    for (int i = 0; i < 10; ++i) {
      rdma_cm_id* id = client_->Resolve(1);
      client_->Connect(id, 0x801 + static_cast<uint32_t>(i), "hi");
    }
    simulation_->RunFor(kMinuteNs);
    logs.push_back(simulation_->log().Text());
    client_.reset();
    server_.reset();
  }
  EXPECT_EQ(logs[0], logs[1]);
  EXPECT_NE(logs[0].find(" cm_lost "), std::string::npos);
  EXPECT_NE(logs[0].find(" cm_duplicated "), std::string::npos);
}

}  // namespace cm_network_test
}  // namespace sluice::softdc::sim
