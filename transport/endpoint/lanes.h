// SPDX-License-Identifier: Apache-2.0
//
// Records of lanes. Private to transport/endpoint: lane_grants.cc opens and closes lanes, lanes_in.cc takes messages from lanes
// that this side reads, lane_sleep.cc prepares lanes for sleep, lanes_out.cc writes to lanes of peers.
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

// A lane that this side reads. Its seat is watched while messages may arrive without completions.
struct InLane : lane::Watch::Seat {
  uint32_t number = 0;
  Peer* peer = nullptr;  // null: the lane is being freed
  lane::State state = lane::State::kMaking;
  uint64_t size_bytes = 0;
  memory::Slab memory;
  std::optional<lane::Reader> reader;  // set when the memory is registered
  lane::Ask ask;                       // last request to the sender
  std::optional<uint32_t> written;     // messages written, as answered to `ask`; empty: unknown
  // Stamp value of the first message that may still be announced. Empty: the sender may announce nothing.
  std::optional<uint32_t> unannounced;
  uint32_t marked = 0;         // messages taken when lane memory was last short
  uint32_t window_marked = 0;  // messages taken at the last LaneIsUsed()
  uint32_t rounds = 0;         // rounds of LookForAnswers() since the last request
};

struct OutLane {
  explicit OutLane(const lane::Grant& grant) : writer(grant) {}

  lane::Writer writer;
  lane::Mode mode = lane::Mode::kClosed;
  uint32_t turn = 0;
  // Null: messages are written from send buffers. Peer::ring has the same information.
  SendRing* ring = nullptr;
};

struct PeerLanes {
  // A message in a receive buffer that waits for earlier messages from the lane.
  struct Held {
    ibv_wc wc;
    uint16_t number;
  };

  InLane* in = nullptr;
  std::vector<Held> held;
  std::optional<uint16_t> goodbye;  // the peer has disconnected, after this many messages
  std::optional<OutLane> out;
  bool ask_due = false;
  bool answer_due = false;
  bool listed = false;  // in EndpointImpl::lane_words_
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_LANES_H_
