// SPDX-License-Identifier: Apache-2.0
//
// State of Sessions for large messages to and from one peer. A peer without large messages has none.
//
// Out           The writer fills memory that is lent to the peer (endpoint.h). The message with its place gets its sequence number when
//               the device has registered the memory. Messages that are committed behind it wait until then, so the order is kept. The
//               lending ends with kTaken of the peer, or when the peer disconnects.
// In            The message is fetched. Messages of the same call or flow that arrive meanwhile wait behind it as copies; other messages
//               pass. A cancel for a request that is still being fetched removes the request: no handler has seen it.
// Ownership     Sessions.
// Threads       The polling thread.
// Limits        kMaxLent large messages in each direction until the sender has received kTaken; copies of kMaxHeldBytes. A peer that
//               exceeds a limit is disconnected. So is a peer whose device refuses kMaxRefusals READs in a row, because each one costs a
//               reset of the stream of READs. A message costs a constant number of steps, regardless of the number of waiting messages.
#ifndef SLUICE_MIDDLEWARE_SESSION_PEER_LARGE_H_
#define SLUICE_MIDDLEWARE_SESSION_PEER_LARGE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "middleware/frame/frame.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::session {

inline constexpr uint32_t kNotLarge = 0xffffffff;
inline constexpr uint32_t kNoSlot = 0xffffffff;
inline constexpr uint32_t kNoFetch = 0xffffffff;
inline constexpr uint32_t kMaxLent = 64;
inline constexpr uint64_t kMaxHeldBytes = 64 << 20;
inline constexpr uint32_t kMaxRefusals = 8;

// Memory that is lent, from Reserve() until the peer has read it.
struct Lent {
  endpoint::PeerId peer;
  uint64_t offset = 0;         // offset of the message in the memory
  bool in_place = false;       // the user wrote part of the message there before
  endpoint::SendBuffer place;  // of the message that carries its Place
  frame::Header header;        // of the lent message, once committed
  bool committed = false;
  bool sent = false;
  absl::Status status;  // not OK: the device refused to register the memory
};

// A committed message that can't be sent yet, or that waits behind such a message.
struct Unsent {
  endpoint::SendBuffer buffer;
  frame::Header header;
  bool report_soon = false;
};

// Identifies messages that must stay in order: the messages of one call, or of one flow.
struct LineKey {
  bool of_flow = false;
  uint64_t id = 0;

  friend bool operator==(const LineKey&, const LineKey&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const LineKey& key) {
    return H::combine(std::move(state), key.of_flow, key.id);
  }
};

// A large message of the peer, from the arrival of its Place until kTaken is due.
struct Fetch {
  LineKey line;
  uint32_t fetch = 0;      // number in the endpoint; after a failure another fetch may have it
  uint32_t number = 0;     // number of the sender
  bool ended = false;      // fetched, or failed
  bool cancelled = false;  // cancelled by the peer; it is in no line
  absl::Status status;
  endpoint::LargeBuffer buffer;
};

struct Incoming {
  frame::Header header;
  std::shared_ptr<Fetch> large;  // null: a copy
  std::vector<std::byte> copy;
};

struct PeerLarge {
  struct Sent {
    uint32_t sequence;
    uint32_t number;
    uint32_t own_before;  // number of kTaken messages that this side sent before it
  };

  // Out.
  uint32_t lent = 0;
  bool refused = false;  // a Reserve() failed because of kMaxLent
  std::deque<Unsent> unsent;
  std::deque<Sent> sent;  // large messages without kTaken, in order
  // Sequence numbers of kTaken messages of this side that are not acknowledged. The user does not count these messages.
  std::deque<uint32_t> own;
  uint32_t own_acknowledged = 0;  // number of acknowledged kTaken messages
  // In.
  absl::flat_hash_map<LineKey, std::deque<Incoming>> lines;         // none is empty
  absl::flat_hash_map<uint32_t, std::shared_ptr<Fetch>> under_way;  // by the endpoint's number
  uint32_t fetches = 0;   // fetches that are not in `untold` yet
  uint32_t refusals = 0;  // in a row
  uint64_t held_bytes = 0;
  std::deque<uint32_t> untold;  // numbers whose kTaken waits for credit
};

}  // namespace sluice::session

#endif  // SLUICE_MIDDLEWARE_SESSION_PEER_LARGE_H_
