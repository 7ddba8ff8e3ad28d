// SPDX-License-Identifier: Apache-2.0
//
// SendRing: this side's copy of a lane that it writes. Private to transport/endpoint; used by lanes_out.cc.
//
// Purpose       Cells of registered memory, each of the size of a lane slot, for one or two laps of the lane: slot i of the peer
//               uses cell i, then cell `slots` + i. Messages are built in their cells, so consecutive messages go out as one
//               RDMA WRITE. A message stays in its cell until it is acknowledged and its WRITE is complete, because it may have to
//               be sent again. Completions are polled later than acknowledgements: the second lap is for that time.
// Cells         One writer at a time reserves the cell of the next message. The cells from `oldest` on, `used` of them, hold
//               messages whose requests are not known to be complete. The last `batch` of them are in no request yet.
// Ownership     The endpoint, which has a fixed number of rings. If none is free, a lane's messages are written singly from
//               send buffers.
// End           Closed with its lane, or if the device keeps its cells for long: the remaining messages are written from send buffers.
//               A ring is free for the next lane when its messages are acknowledged or their peer is down, and no request
//               refers to it (docs/decisions/0063).
#ifndef SLUICE_TRANSPORT_ENDPOINT_SEND_RING_H_
#define SLUICE_TRANSPORT_ENDPOINT_SEND_RING_H_

#include <cstddef>
#include <cstdint>

#include "transport/endpoint/endpoint.h"
#include "transport/lane/layout.h"
#include "transport/peer/credits.h"

namespace sluice::endpoint {

struct OutLane;
struct Peer;

struct alignas(128) SendRing {
  // Maximum number of messages in one WRITE. The peer reads them while this side builds the next messages.
  static constexpr uint32_t kMaxBatch = 16;

  std::byte* memory = nullptr;  // constant, like first_slot and index
  uint32_t first_slot = 0;      // in the slot table; each cell has a slot
  uint32_t index = 0;           // in rings_; 0: the ring of peers without a ring

  // Values of the lane, valid while the ring is open.
  Peer* peer = nullptr;    // null: closed
  OutLane* out = nullptr;  // null: closed
  PeerId id;               // of that peer, until the ring is free
  uint32_t slots = 0;
  uint32_t cells = 0;  // slots, or twice the slots
  uint32_t cell_bytes = 0;

  // The next message may use a cell without another check of its peer if it has at most `most_bytes` bytes and SendCredits::used()
  // is below `limit`, modulo 2^32. `limit` is the credit of the window in use, or the room in the lane if that is less.
  uint32_t most_bytes = 0;
  uint32_t limit = 0;

  uint32_t next = 0;  // cell of the next message
  uint32_t stop = 0;  // cell at which the batch is written; next + 1 while there is none
  uint32_t oldest = 0;
  uint32_t used = 0;
  uint32_t batch = 0;
  bool batch_asks = false;  // a message of the batch requests a report
  bool reserved = true;     // cell `next` is being written; always true for ring 0
  bool listed = false;      // in the list unwritten_rings_
  SendRing* next_listed = nullptr;
  uint32_t unsignalled = 0;     // messages in WRITEs since the last signalled WRITE
  uint32_t reserved_bytes = 0;  // of the message in the reserved cell, prefix included
  std::byte* reserved_message = nullptr;
  // Closed ring: number of acknowledged messages after which no message in it is retransmitted.
  uint32_t last_credit = 0;

  uint32_t slot() const { return first_slot + next; }
  // Sets `limit`. At most slots - 2 messages may be unacknowledged (docs/decisions/0024).
  void SetLimit(const peer::SendCredits& credits, uint32_t window) {
    const uint32_t credit = credits.limit();
    const uint32_t room = credits.acknowledged(window) + slots - 2;
    limit = static_cast<int32_t>(room - credit) < 0 ? room : credit;
  }
  bool MayReserve(const peer::SendCredits& credits, uint32_t bytes) const {
    return static_cast<int32_t>(limit - credits.used()) > 0 && bytes <= most_bytes && !reserved &&
           used != cells;
  }
  // Returns whether this cell is reserved, for a message of `bytes`.
  bool Holds(uint32_t slot_index, uint32_t bytes) const {
    return reserved && slot() == slot_index && reserved_bytes == bytes;
  }
  // Returns whether the message in the reserved cell joins a batch without ending it, and needs no report.
  bool GoesOn(const peer::SendCredits& credits) const {
    return next + 1 != stop && static_cast<int32_t>(limit - credits.used()) > 0;
  }
  // Returns the address for a message in cell `next`: its stamp must end where the cell ends.
  std::byte* PlaceOf(uint32_t message_bytes) const {
    return memory + size_t{next + 1} * cell_bytes -
           lane::EncodedBytes(lane::Layout::kWhole, message_bytes);
  }
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_SEND_RING_H_
