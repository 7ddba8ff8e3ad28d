// SPDX-License-Identifier: Apache-2.0
//
// The objects behind rdma_event_channel, rdma_cm_event and rdma_cm_id.
//
// Each derives from the public struct, so that the pointer an application holds is the object. All
// members beyond the public ones belong to the engine and are guarded by its lock.
#ifndef SLUICE_TRANSPORT_SOFTDC_CM_EVENT_CHANNEL_H_
#define SLUICE_TRANSPORT_SOFTDC_CM_EVENT_CHANNEL_H_

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <deque>
#include <memory>

#include "transport/softdc/cm/fabric.h"
#include "transport/softdc/cm/qp_attributes.h"
#include "transport/softdc/cm/state_machine.h"
#include "transport/softdc/cm/wire_message.h"
#include "transport/softdc/loop/unique_fd.h"

namespace sluice::softdc::cm {

class Engine;

struct Id : rdma_cm_id {
  Engine* engine = nullptr;
  uint64_t serial = 0;  // names the id where a pointer could dangle (timers)
  State state = State::kIdle;

  Handle wire = 0;  // reserved port, then listener or wire; 0 once it is closed
  Handle key = 0;   // the peer's queue pair number in the host's table
  uint64_t timer = 0;
  uint32_t timer_generation = 0;

  // Events of this id that the application got, and that it acknowledged.
  uint32_t events_reported = 0;
  uint32_t events_acked = 0;

  // Listener.
  uint32_t backlog = 0;
  uint32_t unread_requests = 0;

  // Active side: repetition of the REQ; both sides: of the DREQ.
  bool passive = false;
  bool answered = false;  // the peer application has the request
  bool quick_retry = false;
  uint32_t attempts = 0;
  uint32_t unanswered = 0;
  WireMessage request{};

  QpFacts facts{};
  uint32_t local_qp_num = 0;
  ibv_ece local_ece{};
  ibv_ece remote_ece{};
  uint8_t traffic_class = 0;
  bool ack_timeout_set = false;
  uint8_t ack_timeout = 0;  // as the application set it
  uint8_t packet_lifetime = kRocePacketLifetime;
  uint8_t path_ack_timeout = 0;  // as agreed in the REQ; gives the length of timewait
  bool reuse_address = false;
  bool v6_only = false;

  ibv_sa_path_rec path_record{};  // what route.path_rec points to
};

struct Event : rdma_cm_event {
  Id* owner = nullptr;    // whose destruction waits for the acknowledgement
  Id* request = nullptr;  // CONNECT_REQUEST: the new id, the engine's until it is delivered
  uint8_t private_data[kRepPrivateDataBytes] = {};
};

// A bounded-by-construction queue: at most a few events per id, and a listener's backlog of
// requests.
struct Channel : rdma_event_channel {
  Engine* engine = nullptr;
  UniqueFd event_fd;  // non-zero, hence readable, exactly while `queue` is not empty
  std::deque<std::unique_ptr<Event>> queue;

  // 0 or errno.
  int Open();

  void Push(std::unique_ptr<Event> event);
  std::unique_ptr<Event> Pop();  // nullptr: empty

  // Takes out all events whose owner is `owner`, in order.
  std::deque<std::unique_ptr<Event>> Extract(const Id* owner);

 private:
  void SetReadable(bool readable);
};

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_EVENT_CHANNEL_H_
