// SPDX-License-Identifier: Apache-2.0
//
// The record of one peer. Private to transport/endpoint.
//
// Purpose       An idle peer costs at most 256 bytes (tests/transport/endpoint/idle_state_test): this record, the record of its
//               connection (transport/cm/connection.h), four bytes that map the connection to the peer, and a shared name.
//               State that is needed only to connect or disconnect is allocated separately for that time.
// Ownership     The endpoint's table. A record does not move, and later peers reuse it.
#ifndef SLUICE_TRANSPORT_ENDPOINT_PEER_H_
#define SLUICE_TRANSPORT_ENDPOINT_PEER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "transport/base/timer_wheel.h"
#include "transport/cm/connection_manager.h"
#include "transport/endpoint/endpoint.h"
#include "transport/lane/heat.h"
#include "transport/path/congestion_profiles.h"
#include "transport/peer/credits.h"
#include "transport/peer/handshake.h"
#include "transport/peer/secrets.h"
#include "transport/peer/states.h"
#include "transport/peer/terms.h"
#include "transport/queue/target.h"

namespace sluice::endpoint {

class EndpointImpl;
struct Peer;

// State of a handshake: at a client until the peer is up, at a server until its answer has arrived.
// The destructor overwrites the keys.
struct Handshake {
  peer::Secret secret;
  peer::HelloMessage hello = {};
  peer::SessionKeys keys;
  int64_t deadline_ns = 0;
  std::string host;  // client: host of Connect()
  uint16_t port = 0;
  std::optional<peer::Cookie> cookie;  // client: cookie to return
  uint8_t cookies = 0;                 // client: cookies received so far
  std::string source;                  // server: source that the handshake is charged to
  bool half_open = false;              // counted as a half-open handshake of that source
  bool charged = false;                // took a token of that source
  bool fresh = false;                  // server: the client has returned a cookie
  bool proven = false;                 // the terms of the peer are adopted
  bool unsaid = false;                 // its proof or answer waits for a control slot
  uint64_t max_large_bytes = 0;        // limit of both ends
};

// State that a peer needs only to connect and to disconnect.
struct Passage {
  Passage(base::Timer::Callback on_time, EndpointImpl* of, Peer* its)
      : timer(on_time, this), owner(of), peer(its) {}

  base::Timer timer;  // of the handshake, and of the disconnect
  EndpointImpl* const owner;
  Peer* const peer;
  std::unique_ptr<Handshake> handshake;
};

struct Peer {
  queue::Target target;  // its cookie is the peer's index, its name the address
  std::unique_ptr<Passage> passage;
  const path::Profile* profile = nullptr;
  cm::ConnectionId connection;
  uint64_t epoch = 0;  // of the remote endpoint
  uint32_t generation = 0;
  uint32_t token = 0;  // the peer must send it in its prefixes
  uint32_t remote_index = 0;
  uint32_t remote_token = 0;
  [[no_unique_address]] peer::SendCredits send;  // the next fields use its padding
  uint8_t offer = 0;                             // offer of the remote device: number in Offers
  bool evicted : 1 = false;                      // while half-open: takes no place of its tenant
  uint8_t ring : 5 = 0;                          // index of its send ring in rings_; 0: none
  uint8_t rc_order : 2 = 0;                      // of its WRITEs, as verbs::DataOrder; RC only
  peer::ReceiveCredits receive;
  uint32_t remote_window : 18 = 0;  // nominal window of the peer
  uint32_t told_down : 1 = 0;
  uint32_t down_due : 1 = 0;            // OnPeerDown() is due; the index is reused only afterwards
  uint32_t targets_due : 1 = 0;         // in owed_targets_
  uint32_t reads : 8 = 0;               // maximum number of READs in flight at both ends
  uint32_t mtu : 3 = 0;                 // of both ends, as enum ibv_mtu
  uint32_t max_message_bytes : 21 = 0;  // limit of both ends
  uint32_t service_level : 4 = 0;
  uint32_t commands : 3 = 0;          // in progress
  uint32_t report_requested : 1 = 0;  // from the peer, not received yet
  uint32_t report_needed : 1 = 0;     // a further report, after the requested report
  uint32_t report_queued : 1 = 0;     // in report_queue_
  uint32_t resend : 1 = 0;            // OnResend() is due
  uint16_t lanes = 0;                 // index of its record in peer_lanes_, plus 1; 0: no record
  uint16_t committed = 0;             // data messages so far: the number of the next message
  lane::Heat heat;                    // of messages that it sends
  uint8_t tenant = 0;                 // index of its reception
  peer::State state = peer::State::kFree;
  bool inbound : 1 = false;
  bool told_up : 1 = false;
  bool has_connection : 1 = false;
  bool has_path : 1 = false;              // address handle and handshake keys are ready
  bool in_queue : 1 = false;              // the target was opened
  bool blocked : 1 = false;               // in blocked_: waits for a credit or a buffer
  bool credit_report_queued : 1 = false;  // in credit_reports_
  bool authenticated : 1 = false;
  bool mapped : 1 = false;
  bool first_on_handle : 1 = false;
  bool unanswered : 1 = false;                // requests to it had no answer: its handle is suspect
  bool map_failed : 1 = false;                // the device refused to map its handle
  bool active_since_last_look : 1 = false;    // a message arrived since the last keepalive check
  bool probe_outstanding : 1 = false;         // since the last keepalive check; a resend clears it
  bool report_requested_by_peer : 1 = false;  // this side has not sent it yet
  bool old_targets : 1 = false;  // it may use the previous DCTs of its tenant (Renewal)

  Handshake* handshake() const { return passage == nullptr ? nullptr : passage->handshake.get(); }
  uint32_t index() const { return target.cookie; }
  PeerId id() const { return {index(), generation}; }
  std::string_view address() const { return target.name; }
};
static_assert(sizeof(Peer) == 160);

// A callback that is due for a peer, with its cause.
struct Down {
  PeerId id;
  absl::Status why;
};
static_assert(peer::kMaxCredits < 1u << 18 && peer::kMaxCredits <= peer::SendCredits::kMaxNominal);

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_PEER_H_
