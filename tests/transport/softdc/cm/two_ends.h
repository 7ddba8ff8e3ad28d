// SPDX-License-Identifier: Apache-2.0
//
// A client and a server on virtual hosts, and everything that they are told, with its time.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_CM_TWO_ENDS_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_CM_TWO_ENDS_H_

#include <fcntl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/transport/softdc/cm/cm_fixture.h"
#include "tests/transport/softdc/cm/event_names.h"
#include "tests/transport/softdc/cm/memory_network.h"

namespace sluice::softdc::cm {

constexpr int64_t kLongNs = 500 * kSecond;
constexpr int64_t kAllRetriesNs = kRetryNs * kMaxAttempts;

struct Heard {
  int64_t at_ns;
  char side;  // C or S
  Seen seen;
  ibv_ece ece;
};

class TwoEnds {
 public:
  enum class Where { kTwoDevices, kOneDevice };

  explicit TwoEnds(Where where = Where::kTwoDevices, const Dials::Cm& dials = {})
      : server_host(where == Where::kOneDevice ? 1 : 2),
        client_(this, 'C', 1, dials),
        server_(this, 'S', server_host, dials) {}

  // `backlog` as in rdma_listen.
  void Listen(int backlog = 0) {
    listener = Server();
    sockaddr_in any = Ipv4("0.0.0.0", kPort);
    ASSERT_EQ(bind_addr(listener, Generic(&any)), 0);
    ASSERT_EQ(listen(listener, backlog), 0);
  }

  rdma_cm_id* Client() { return client_.NewId(); }
  rdma_cm_id* Server() { return server_.NewId(); }

  // A client's id that is ready to connect.
  rdma_cm_id* Resolved(uint8_t ack_timeout = 0) {
    rdma_cm_id* id = Client();
    if (ack_timeout != 0) {
      EXPECT_EQ(set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout, 1), 0);
    }
    sockaddr_in to = Ipv4(server_host == 1 ? "10.0.0.1" : "10.0.0.2", kPort);
    EXPECT_EQ(resolve_addr(id, nullptr, Generic(&to), 1000), 0);
    Drain();
    EXPECT_EQ(resolve_route(id, 1000), 0);
    Drain();
    told.clear();
    return id;
  }

  static int Connect(rdma_cm_id* id, uint32_t qp_num, const std::string& data = "") {
    rdma_conn_param param = Param(qp_num, data);
    return connect(id, &param);
  }
  static int Accept(rdma_cm_id* id, uint32_t qp_num, const std::string& data = "") {
    rdma_conn_param param = Param(qp_num, data);
    return accept(id, &param);
  }

  // An established connection; what was told about it is forgotten.
  Connection Establish(uint32_t client_number, uint32_t server_number, uint8_t ack_timeout = 0) {
    Connection made;
    made.client = Resolved(ack_timeout);
    EXPECT_EQ(Connect(made.client, client_number), 0);
    Run(kSecond);
    made.server = Last('S', RDMA_CM_EVENT_CONNECT_REQUEST);
    if (made.server == nullptr) return made;
    EXPECT_EQ(Accept(made.server, server_number), 0);
    Run(kSecond);
    EXPECT_EQ(Last('C', RDMA_CM_EVENT_CONNECT_RESPONSE), made.client);
    EXPECT_EQ(establish(made.client), 0);
    Run(kSecond);
    EXPECT_EQ(Last('S', RDMA_CM_EVENT_ESTABLISHED), made.server);
    told.clear();
    return made;
  }

  // As applications do: the server accepts with the client's number plus `distance`, the client
  // establishes.
  void AnswerAll(uint32_t distance) {
    on = [this, distance](const Heard& event) {
      if (event.seen.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        Accept(event.seen.id, event.seen.conn.qp_num + distance);
      } else if (event.seen.type == RDMA_CM_EVENT_CONNECT_RESPONSE) {
        establish(event.seen.id);
      }
    };
  }

  // Lets so much virtual time pass; each event goes to `told` and `on` when it can be read.
  void Run(int64_t delay_ns) {
    const int64_t end_ns = network.now_ns() + delay_ns;
    Drain();
    while (network.StepUntil(end_ns)) Drain();
  }

  // The id of the last such event, or nullptr.
  rdma_cm_id* Last(char side, rdma_cm_event_type type) const {
    for (auto event = told.rbegin(); event != told.rend(); ++event) {
      if (event->side == side && event->seen.type == type) return event->seen.id;
    }
    return nullptr;
  }

  int Count(char side, rdma_cm_event_type type) const {
    return static_cast<int>(std::count_if(told.begin(), told.end(), [&](const Heard& event) {
      return event.side == side && event.seen.type == type;
    }));
  }

  // As "S DISCONNECTED, C REJECTED 10".
  std::string Story() const {
    std::string story;
    for (const Heard& event : told) {
      if (!story.empty()) story += ", ";
      story += event.side;
      story += ' ';
      story += NameOf(event.seen.type);
      if (event.seen.status != 0) story += " " + std::to_string(event.seen.status);
    }
    return story;
  }

  void Destroy(rdma_cm_id* id) {
    client_.Forget(id);
    server_.Forget(id);
    EXPECT_EQ(destroy_id(id), 0);
  }

  static constexpr uint16_t kPort = 7471;

  const uint32_t server_host;
  MemoryNetwork network;
  rdma_cm_id* listener = nullptr;
  std::vector<Heard> told;
  std::function<void(const Heard&)> on;

 private:
  class End {
   public:
    End(TwoEnds* ends, char name, uint32_t host, const Dials::Cm& dials)
        : ends_(ends),
          name_(name),
          engine_(DeviceHooks{{}, {}, 0x1000 + host, nullptr}, &ends->network, dials) {
      engine_.SetFabric(std::make_unique<MemoryFabric>(&ends->network, host, &engine_));
      UseEngine(&engine_);
      channel_ = create_event_channel();
      UseEngine(nullptr);
      EXPECT_EQ(fcntl(channel_->fd, F_SETFL, O_NONBLOCK), 0);
    }
    ~End() {
      for (rdma_cm_id* id : ids_) EXPECT_EQ(destroy_id(id), 0);
      destroy_event_channel(channel_);
    }
    rdma_cm_id* NewId() {
      EXPECT_EQ(create_id(channel_, &ids_.emplace_back(), nullptr, RDMA_PS_TCP), 0);
      return ids_.back();
    }
    void Forget(rdma_cm_id* id) { std::erase(ids_, id); }

    // Whether there was one.
    bool Next(Heard* told) {
      rdma_cm_event* event = nullptr;
      if (get_cm_event(channel_, &event) != 0) return false;
      if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) ids_.push_back(event->id);
      *told = {ends_->network.now_ns(), name_, {}, {}};
      told->seen.type = event->event;
      told->seen.status = event->status;
      told->seen.id = event->id;
      told->seen.conn = event->param.conn;
      if (event->param.conn.private_data != nullptr) {
        told->seen.data.assign(static_cast<const char*>(event->param.conn.private_data),
                               event->param.conn.private_data_len);
      }
      get_remote_ece(event->id, &told->ece);
      EXPECT_EQ(ack_cm_event(event), 0);
      return true;
    }

   private:
    TwoEnds* const ends_;
    const char name_;
    Engine engine_;
    rdma_event_channel* channel_ = nullptr;
    std::vector<rdma_cm_id*> ids_;
  };

  static rdma_conn_param Param(uint32_t qp_num, const std::string& data) {
    rdma_conn_param param{};
    param.qp_num = qp_num;
    param.private_data = data.empty() ? nullptr : data.data();
    param.private_data_len = static_cast<uint8_t>(data.size());
    param.responder_resources = param.initiator_depth = 4;
    param.retry_count = param.rnr_retry_count = 7;
    return param;
  }

  void Drain() {
    for (End* end : {&client_, &server_}) {
      Heard event;
      while (end->Next(&event)) {
        told.push_back(event);
        if (on) on(event);
      }
    }
  }

  End client_;
  End server_;
};

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_CM_TWO_ENDS_H_
