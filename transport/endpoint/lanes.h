// SPDX-License-Identifier: Apache-2.0
//
// Records of lanes. Private to transport/endpoint: lane_grants.cc opens and closes lanes, lanes_in.cc takes messages from lanes
// that this side reads, lane_sleep.cc is about sleep beside them, lanes_out.cc writes to lanes of peers.
//
// Purpose       A peer has at most one lane in each direction. A message to a peer is either sent or written to the lane, and
//               each says how many messages came before it. The receiver takes them in that order, and holds back a sent message that
//               arrives early.
// Ownership     The endpoint owns the lanes that it reads. The peer's record owns the rest. Peers without lanes have no record.
#ifndef SLUICE_TRANSPORT_ENDPOINT_LANES_H_
#define SLUICE_TRANSPORT_ENDPOINT_LANES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/endpoint/peer.h"
#include "transport/endpoint/send_ring.h"
#include "transport/lane/reader.h"
#include "transport/lane/states.h"
#include "transport/lane/watch.h"
#include "transport/lane/words.h"
#include "transport/lane/writer.h"
#include "transport/memory/slab.h"

namespace sluice::endpoint {

// Its seat: as long as something may be written of which no completion tells.
struct InLane : lane::Watch::Seat {
  uint32_t number = 0;
  Peer* peer = nullptr;  // null: it is being freed
  lane::State state = lane::State::kMaking;
  uint64_t size_bytes = 0;
  memory::Slab memory;
  std::optional<lane::Reader> reader;  // when the memory is there
  lane::Ask ask;                       // the last one
  std::optional<uint32_t> written;     // what was answered to it, if that is waited for
  uint32_t marked = 0;                 // messages taken, when memory was last short
  uint32_t window_marked = 0;          // messages taken, when receive buffers were last short
  uint32_t rounds = 0;                 // in which what was asked was not done
};

struct OutLane {
  explicit OutLane(const lane::Grant& grant) : writer(grant) {}

  lane::Writer writer;
  lane::Mode mode = lane::Mode::kClosed;
  uint32_t turn = 0;
  SendRing* ring =
      nullptr;  // null: messages are written from send buffers (Peer::ring says the same)
};

struct PeerLanes {
  // In a receive buffer, ahead of what has yet to come from the lane.
  struct Held {
    ibv_wc wc;
    uint16_t number;
  };

  InLane* in = nullptr;
  std::vector<Held> held;
  std::optional<uint16_t> goodbye;  // the peer has gone, after so many messages
  std::optional<OutLane> out;
  bool ask_due = false;
  bool answer_due = false;
  bool listed = false;  // among those who are owed words
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_LANES_H_
