// SPDX-License-Identifier: Apache-2.0
//
// SimPeer: a program on a simulated host that speaks RDMA_CM as it likes, through the table: it does
// only what the test tells it to. And SimUser, which writes down what a manager says.
#ifndef SLUICE_TESTS_TRANSPORT_CM_SIM_PEER_H_
#define SLUICE_TESTS_TRANSPORT_CM_SIM_PEER_H_

#include <rdma/rdma_cma.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/transport/cm/sim_process.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::cm {

inline constexpr uint16_t kSimPort = 7471;

class SimPeer {
 public:
  SimPeer(softdc::sim::Simulation& simulation, uint32_t node);
  ~SimPeer();
  SimPeer(const SimPeer&) = delete;
  SimPeer& operator=(const SimPeer&) = delete;

  void Listen();
  // To node `to`, with this number; the answer is not looked at.
  void Connect(uint32_t to, uint32_t number);
  // Takes all events. New connections are accepted or left alone.
  void Poll();
  void Disconnect(rdma_cm_id* id);

  bool accepts = true;
  bool answers_disconnects = true;
  std::vector<rdma_cm_id*> requests;  // as they came
  std::vector<uint32_t> numbers;      // of those who asked
  int established = 0;
  int responses = 0;
  int disconnected = 0;

 private:
  softdc::sim::Simulation& simulation_;
  const uint32_t node_;
  const verbs::VerbsApi& api_;
  rdma_event_channel* channel_ = nullptr;
  std::vector<rdma_cm_id*> ids_;
  uint32_t next_number_ = 0x900000;
};

struct SimUser : User {
  void OnRequest(ConnectionId id, std::span<const std::byte>, const PathInfo&,
                 const std::string&) override {
    ++requests;
    last = id;
    if (accepts) manager->Accept(id, {});
  }
  void OnResponse(ConnectionId id, std::span<const std::byte>, const PathInfo&) override {
    manager->Establish(id);
  }
  void OnUp(ConnectionId id) override {
    ++ups;
    last = id;
  }
  void OnDown(ConnectionId id, const absl::Status& status, std::span<const std::byte>) override {
    ++downs;
    last = id;
    why = status;
  }
  void OnListenerDown(const absl::Status& status) override { listener_downs.push_back(status); }

  ConnectionManager* manager = nullptr;
  bool accepts = true;
  int requests = 0, ups = 0, downs = 0;
  ConnectionId last;
  absl::Status why;
  std::vector<absl::Status> listener_downs;
};

}  // namespace sluice::cm

#endif  // SLUICE_TESTS_TRANSPORT_CM_SIM_PEER_H_
