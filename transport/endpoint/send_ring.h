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
  // Messages in one WRITE: the peer begins with the first ones while this side writes the next ones.
  static constexpr uint32_t kMaxBatch = 16;

  std::byte* memory = nullptr;  // constant, as the two that follow
  uint32_t first_slot = 0;      // of the slot table; one for each cell
  uint32_t index = 0;           // among the rings; 0: the one of peers without a ring

  // Of the lane, while it is open.
  Peer* peer = nullptr;    // null: closed
  OutLane* out = nullptr;  // likewise
  PeerId id;               // of that peer, until the ring is free
  uint32_t slots = 0;
  uint32_t cells = 0;  // slots, or twice as many
  uint32_t cell_bytes = 0;

  // The next message may be written into a cell without another look at its peer if its bytes are at most `most_bytes`, and
  // fewer credits than `limit` are used (SendCredits::used(), modulo 2^32): that is the credit of the window in use and the room in the lane.
  uint32_t most_bytes = 0;
  uint32_t limit = 0;

  uint32_t next = 0;  // the cell of the next message
  uint32_t stop = 0;  // of the batch: at this cell it is written
  uint32_t oldest = 0;
  uint32_t used = 0;
  uint32_t batch = 0;
  bool batch_asks = false;  // one of the batch asks the peer to report
  bool reserved = true;     // somebody writes into the cell `next`; or this is no ring
  bool listed = false;      // among those that may have a batch
  SendRing* next_listed = nullptr;
  uint32_t unsignalled = 0;     // messages of WRITEs since the last one that is signalled
  uint32_t reserved_bytes = 0;  // of the message in the cell that is reserved, prefix included
  std::byte* reserved_message = nullptr;
  uint32_t last_credit = 0;  // when closed: acknowledged up to there, nothing in it is sent again

  uint32_t slot() const { return first_slot + next; }
  // As many messages as the lane has slots, less two, may be unacknowledged (docs/decisions/0024).
  void SetLimit(const peer::SendCredits& credits, uint32_t window) {
    const uint32_t credit = credits.limit();
    const uint32_t room = credits.acknowledged(window) + slots - 2;
    limit = static_cast<int32_t>(room - credit) < 0 ? room : credit;
  }
  bool MayReserve(const peer::SendCredits& credits, uint32_t bytes) const {
    return static_cast<int32_t>(limit - credits.used()) > 0 && bytes <= most_bytes && !reserved &&
           used != cells;
  }
  // That cell is reserved, for a message of that length.
  bool Holds(uint32_t slot_index, uint32_t bytes) const {
    return reserved && slot() == slot_index && reserved_bytes == bytes;
  }
  // The message in the cell that is reserved joins a batch, and neither ends it nor needs a report.
  bool GoesOn(const peer::SendCredits& credits) const {
    return batch != 0 && next + 1 != stop && static_cast<int32_t>(limit - credits.used()) > 0;
  }
  // Of a message that ends where it has to, in the cell `next`.
  std::byte* PlaceOf(uint32_t message_bytes) const {
    return memory + size_t{next + 1} * cell_bytes -
           lane::EncodedBytes(lane::Layout::kWhole, message_bytes);
  }
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_SEND_RING_H_
