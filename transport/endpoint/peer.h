// SPDX-License-Identifier: Apache-2.0
//
// The record of one peer. Private to transport/endpoint.
//
// Purpose       An idle peer costs this record, the record of its connection (transport/cm/connection.h), four bytes that map the
//               connection to the peer, and the peer's name, which records share: 256 bytes together at most
//               (tests/transport/endpoint/idle_state_test). State that is needed only to connect or disconnect is allocated
//               separately for that time.
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

// What a peer needs until it is up, and until the answer has arrived that ends the handshake. Keys in
// it are overwritten when it goes.
struct Handshake {
  peer::Secret secret;
  peer::HelloMessage hello = {};
  peer::SessionKeys keys;
  int64_t deadline_ns = 0;
  std::string host;  // as asked for; of a client
  uint16_t port = 0;
  std::optional<peer::Cookie> cookie;  // the one to bring back; of a client
  uint8_t cookies = 0;                 // got so far
  std::string source;                  // whom it is charged to; of a server
  bool half_open = false;              // it holds one of that source's places
  bool charged = false;                // and a token
  bool proven = false;           // the other side's terms are taken; what is left is to answer
  bool unsaid = false;           // its proof or answer waits for a control slot
  uint64_t max_large_bytes = 0;  // as agreed
};

// What a peer has on its way up and on its way out; nothing while it is up.
struct Passage {
  Passage(base::Timer::Callback on_time, EndpointImpl* of, Peer* its)
      : timer(on_time, this), owner(of), peer(its) {}

  base::Timer timer;  // of the handshake, and of leaving
  EndpointImpl* const owner;
  Peer* const peer;
  std::unique_ptr<Handshake> handshake;
};

struct Peer {
  queue::Target target;  // its cookie is the peer's index, its name the peer's
  std::unique_ptr<Passage> passage;
  const path::Profile* profile = nullptr;
  cm::ConnectionId connection;
  uint64_t epoch = 0;  // of the remote endpoint
  uint32_t generation = 0;
  uint32_t token = 0;  // what the other side must say in its prefixes
  uint32_t remote_index = 0;
  uint32_t remote_token = 0;
  [[no_unique_address]] peer::SendCredits send;  // what follows stands in its padding
  uint8_t offer = 0;                             // of the remote device, in Offers
  bool evicted : 1 = false;  // while half-open; it takes no place of its tenant any more
  uint8_t ring : 5 = 0;      // its send ring, and 1; 0: none
  peer::ReceiveCredits receive;
  uint32_t remote_window : 18 = 0;  // nominal
  uint32_t told_down : 1 = 0;
  uint32_t down_due : 1 = 0;            // OnPeerDown() is: nobody else gets this index before
  uint32_t targets_due : 1 = 0;         // in the list of those who are to be told new targets
  uint32_t reads : 8 = 0;               // what both ends can do
  uint32_t mtu : 3 = 0;                 // likewise, as enum ibv_mtu
  uint32_t max_message_bytes : 21 = 0;  // likewise
  uint32_t service_level : 4 = 0;
  uint32_t commands : 3 = 0;          // under way
  uint32_t report_requested : 1 = 0;  // from the peer, not received yet
  uint32_t report_needed : 1 = 0;     // a further one, after the one requested
  uint32_t report_queued : 1 = 0;     // in report_queue_
  uint32_t resend : 1 = 0;            // it is due to be told OnResend()
  uint16_t lanes = 0;      // its record of lanes, once one was granted by either side; 0: none
  uint16_t committed = 0;  // data messages so far: the number of the next one
  lane::Heat heat;         // of what it sends
  uint8_t tenant = 0;      // its reception
  peer::State state = peer::State::kFree;
  bool inbound : 1 = false;
  bool told_up : 1 = false;
  bool has_connection : 1 = false;
  bool has_path : 1 = false;              // address handle and keys of the handshake are there
  bool in_queue : 1 = false;              // the target was opened
  bool blocked : 1 = false;               // in the list of those who wait for a credit or a buffer
  bool credit_report_queued : 1 = false;  // in the list of those who are due a report
  bool authenticated : 1 = false;
  bool mapped : 1 = false;
  bool first_on_handle : 1 = false;
  bool unanswered : 1 = false;              // requests to it were: its handle is nothing for others
  bool map_failed : 1 = false;              // the device refused to map its handle
  bool active_since_last_look : 1 = false;  // keepalive's look
  bool probe_outstanding : 1 = false;       // since keepalive's last look; false after a resend
  bool report_requested_by_peer : 1 = false;  // this side has not sent it yet
  bool old_targets : 1 = false;               // it knows those that its tenant had before (Renewal)

  Handshake* handshake() const { return passage == nullptr ? nullptr : passage->handshake.get(); }
  uint32_t index() const { return target.cookie; }
  PeerId id() const { return {index(), generation}; }
  std::string_view address() const { return target.name; }
};
static_assert(sizeof(Peer) == 160);

// What the handler is due to hear of a peer, and why.
struct Down {
  PeerId id;
  absl::Status why;
};
static_assert(peer::kMaxCredits < 1u << 18 && peer::kMaxCredits <= peer::SendCredits::kMaxNominal);

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_PEER_H_
