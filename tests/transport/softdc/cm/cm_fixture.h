// SPDX-License-Identifier: Apache-2.0
//
// Two "processes" in one: each Side is an engine of its own on the real sockets, with timers that
// move by hand.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_CM_CM_FIXTURE_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_CM_CM_FIXTURE_H_

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/softdc/cm/cm.h"
#include "transport/softdc/cm/shm_fabric.h"

namespace sluice::softdc::cm {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kSecond = 1'000'000'000;

class ManualTimers final : public Timers {
 public:
  uint64_t After(int64_t delay_ns, std::function<void()> task) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t id = next_id_++;
    tasks_.emplace(std::make_pair(now_ns_ + delay_ns, id), std::move(task));
    return id;
  }

  void Cancel(uint64_t timer_id) override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = tasks_.begin(); it != tasks_.end(); ++it) {
      if (it->first.second == timer_id) {
        tasks_.erase(it);
        return;
      }
    }
  }

  // Runs what falls due, in order, each at its own time.
  void Advance(int64_t delay_ns) {
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t end_ns = now_ns_ + delay_ns;
    while (!tasks_.empty() && tasks_.begin()->first.first <= end_ns) {
      auto node = tasks_.extract(tasks_.begin());
      now_ns_ = node.key().first;
      lock.unlock();
      node.mapped()();
      lock.lock();
    }
    now_ns_ = end_ns;
  }

  int64_t now_ns() {
    std::lock_guard<std::mutex> lock(mutex_);
    return now_ns_;
  }

  size_t armed() {
    std::lock_guard<std::mutex> lock(mutex_);
    return tasks_.size();
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int64_t, uint64_t>, std::function<void()>> tasks_;
  int64_t now_ns_ = 0;
  uint64_t next_id_ = 1;
};

// An event, copied and acknowledged.
struct Seen {
  rdma_cm_event_type type{};
  int status = 0;
  rdma_cm_id* id = nullptr;
  rdma_cm_id* listen_id = nullptr;
  rdma_conn_param conn{};
  std::string data;
};

// Lets everything that is under way between engines arrive: each round is at least one hop of the
// firmware thread.
inline void Settle() {
  for (int i = 0; i < 12; ++i) Loop::Get().RunAndWait([] {});
}

class Side {
 public:
  explicit Side(uint64_t node_guid = 0x5d0c) : Side(DeviceHooks{{}, {}, node_guid, nullptr}) {}
  explicit Side(DeviceHooks hooks) : engine(std::move(hooks), &timers) {
    engine.SetFabric(std::make_unique<ShmFabric>(&Loop::Get(), &engine));
    channel = NewChannel();
  }

  ~Side() {
    for (rdma_cm_id* id : owned_) EXPECT_EQ(destroy_id(id), 0);
    while (!channels_.empty()) CloseChannel(channels_.back());
  }

  rdma_event_channel* NewChannel() {
    UseEngine(&engine);
    rdma_event_channel* created = create_event_channel();
    UseEngine(nullptr);
    EXPECT_NE(created, nullptr);
    channels_.push_back(created);
    return created;
  }

  void CloseChannel(rdma_event_channel* closed) {
    std::erase(channels_, closed);
    destroy_event_channel(closed);
  }

  rdma_cm_id* NewId() {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(create_id(channel, &id, this, RDMA_PS_TCP), 0);
    owned_.push_back(id);
    return id;
  }

  void Destroy(rdma_cm_id* id) {
    std::erase(owned_, id);
    EXPECT_EQ(destroy_id(id), 0);
  }

  // Waits (bounded, only so that a broken build fails instead of hanging) for the next event.
  Seen Next(rdma_event_channel* from = nullptr) {
    if (from == nullptr) from = channel;
    Seen seen;
    pollfd readable{.fd = from->fd, .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, 20'000) != 1) {
      ADD_FAILURE() << "no event came";
      return seen;
    }
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(get_cm_event(from, &event), 0);
    if (event == nullptr) return seen;
    seen.type = event->event;
    seen.status = event->status;
    seen.id = event->id;
    seen.listen_id = event->listen_id;
    seen.conn = event->param.conn;
    if (event->param.conn.private_data != nullptr) {
      seen.data.assign(static_cast<const char*>(event->param.conn.private_data),
                       event->param.conn.private_data_len);
    }
    seen.conn.private_data = nullptr;
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) owned_.push_back(event->id);
    EXPECT_EQ(ack_cm_event(event), 0);
    return seen;
  }

  // Whether an event waits, after everything under way has arrived.
  bool Quiet() {
    Settle();
    pollfd readable{.fd = channel->fd, .events = POLLIN, .revents = 0};
    return poll(&readable, 1, 0) == 0;
  }

  ManualTimers timers;
  Engine engine;
  rdma_event_channel* channel = nullptr;

 private:
  std::vector<rdma_cm_id*> owned_;
  std::vector<rdma_event_channel*> channels_;
};

inline sockaddr_in Ipv4(const char* text, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET, text, &address.sin_addr), 1);
  return address;
}

inline sockaddr* Generic(sockaddr_in* address) { return reinterpret_cast<sockaddr*>(address); }

struct Connection {
  rdma_cm_id* client = nullptr;
  rdma_cm_id* server = nullptr;
};

class CmTest : public ::testing::Test {
 protected:
  // Both clocks, in steps in which repetitions and their answers can cross.
  void AdvanceBoth(int64_t delay_ns) {
    constexpr int64_t kStepNs = 3 * kSecond;
    for (int64_t left_ns = delay_ns; left_ns > 0; left_ns -= kStepNs) {
      client->timers.Advance(std::min(left_ns, kStepNs));
      server->timers.Advance(std::min(left_ns, kStepNs));
      Settle();
    }
  }

  CmTest() {
    // A fabric of its own for each test, so that nothing left over from another can meet it.
    static std::atomic<int> next{0};
    const std::string domain = "t" + std::to_string(getpid()) + "." + std::to_string(next++);
    setenv("SOFTDC_DOMAIN", domain.c_str(), 1);
    client = std::make_unique<Side>();
    server = std::make_unique<Side>();
  }

  // Returns the port.
  uint16_t Listen(int backlog = 0) {
    listener = server->NewId();
    EXPECT_EQ(listen(listener, backlog), 0);
    return ntohs(get_src_port(listener));
  }

  // An id that is ready for connect().
  rdma_cm_id* Resolved(uint16_t port) {
    rdma_cm_id* id = client->NewId();
    sockaddr_in to = Ipv4("127.0.0.1", port);
    EXPECT_EQ(resolve_addr(id, nullptr, Generic(&to), 1000), 0);
    EXPECT_EQ(client->Next().type, RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(resolve_route(id, 1000), 0);
    EXPECT_EQ(client->Next().type, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
  }

  static int ConnectAs(rdma_cm_id* id, uint32_t qp_num, const std::string& data = "") {
    rdma_conn_param param{};
    param.qp_num = qp_num;
    param.private_data = data.empty() ? nullptr : data.data();
    param.private_data_len = static_cast<uint8_t>(data.size());
    param.retry_count = 7;
    param.rnr_retry_count = 7;
    return connect(id, &param);
  }

  static int AcceptAs(rdma_cm_id* id, uint32_t qp_num, const std::string& data = "") {
    rdma_conn_param param{};
    param.qp_num = qp_num;
    param.private_data = data.empty() ? nullptr : data.data();
    param.private_data_len = static_cast<uint8_t>(data.size());
    param.rnr_retry_count = 7;
    return accept(id, &param);
  }

  Connection Establish(uint16_t port, uint32_t client_qpn, uint32_t server_qpn) {
    Connection made;
    made.client = Resolved(port);
    EXPECT_EQ(ConnectAs(made.client, client_qpn), 0);
    const Seen request = server->Next();
    EXPECT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
    made.server = request.id;
    EXPECT_EQ(AcceptAs(made.server, server_qpn), 0);
    EXPECT_EQ(client->Next().type, RDMA_CM_EVENT_CONNECT_RESPONSE);
    EXPECT_EQ(establish(made.client), 0);
    EXPECT_EQ(server->Next().type, RDMA_CM_EVENT_ESTABLISHED);
    return made;
  }

  std::unique_ptr<Side> client;
  std::unique_ptr<Side> server;
  rdma_cm_id* listener = nullptr;
};

// CmTest under the name of what a test file is about.
class CmConnectTest : public CmTest {};
class CmDisconnectTest : public CmTest {};
class CmStaleTest : public CmTest {};
class CmErrorTest : public CmTest {};
class CmEventTest : public CmTest {};
class CmProcessTest : public CmTest {};

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_CM_CM_FIXTURE_H_
