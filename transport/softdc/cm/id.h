// SPDX-License-Identifier: Apache-2.0
//
// Id: the kernel's side of an rdma_cm_id. All members belong to the engine and are guarded by its
// lock.
#ifndef SLUICE_TRANSPORT_SOFTDC_CM_ID_H_
#define SLUICE_TRANSPORT_SOFTDC_CM_ID_H_

#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include <cstdint>

#include "transport/softdc/cm/channel.h"
#include "transport/softdc/cm/fabric.h"
#include "transport/softdc/cm/qp_attributes.h"
#include "transport/softdc/cm/state_machine.h"
#include "transport/softdc/cm/wire_message.h"

namespace sluice::softdc::cm {

struct Id {
  uint32_t number = 0;         // number of the id for callers; the lowest free number
  uint64_t uid = 0;            // 0: not accepted yet, no events are reported
  Channel* channel = nullptr;  // owner: its close destroys the id
  rdma_port_space ps{};
  ibv_qp_type qp_type{};
  uint64_t serial = 0;  // identifies the id where a pointer could dangle (timers)
  State state = State::kIdle;
  bool has_device = false;
  uint32_t events_reported = 0;  // events that the interface has read

  Handle wire = 0;  // reserved port, then listener or wire; 0 after it is closed
  Handle key = 0;   // the peer's queue pair number in the host's table
  uint64_t timer = 0;
  uint32_t timer_generation = 0;

  // Listener.
  uint32_t backlog = 0;
  uint32_t unread_requests = 0;

  // Retransmission of the REQ, the REP, the DREQ.
  bool connected = false;  // active side: `wire` leads to the listener
  bool answered = false;   // the peer application has received `sent`
  bool quick_retry = false;
  uint32_t attempts = 0;
  uint32_t unanswered = 0;
  WireMessage sent{};  // the REQ or REP

  sockaddr_storage source{};  // with port; zero before the id is bound
  sockaddr_storage destination{};
  QpFacts facts{};
  bool has_path = false;
  uint32_t local_qp_num = 0;

  uint8_t traffic_class = 0;
  bool ack_timeout_set = false;
  uint8_t ack_timeout = 0;  // as the application set it
  uint8_t packet_lifetime = 0;
  uint8_t path_ack_timeout = 0;  // as in the REQ; determines the duration of timewait
  bool reuse_address = false;
  bool v6_only = false;

  const sockaddr* from() const { return reinterpret_cast<const sockaddr*>(&source); }
  const sockaddr* to() const { return reinterpret_cast<const sockaddr*>(&destination); }
};

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_ID_H_
