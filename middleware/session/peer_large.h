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
//               reset of the stream of READs. A message costs a constant number of steps, whatever number waits.
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

// Memory that is lent, from Reserve() until the peer has taken what is in it.
struct Lent {
  endpoint::PeerId peer;
  uint64_t offset = 0;         // in that memory, where the message begins
  bool in_place = false;       // its user had written part of it there
  endpoint::SendBuffer place;  // of the message that says where it is
  frame::Header header;        // of the message in it, once committed
  bool committed = false;
  bool sent = false;
  absl::Status status;  // not OK: the device does not take it
};

// Committed, and behind something that can't be sent yet, or that itself.
struct Unsent {
  endpoint::SendBuffer buffer;
  frame::Header header;
  bool report_soon = false;
};

// What has to keep its order among itself: the messages of a call, or of a flow.
struct LineKey {
  bool of_flow = false;
  uint64_t id = 0;

  friend bool operator==(const LineKey&, const LineKey&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const LineKey& key) {
    return H::combine(std::move(state), key.of_flow, key.id);
  }
};

// A large message of the peer's, from its place until its sender is to be told that it was taken.
struct Fetch {
  LineKey line;
  uint32_t fetch = 0;      // the endpoint's number, which may be another's once it has failed
  uint32_t number = 0;     // the sender's
  bool ended = false;      // fetched, or could not be
  bool cancelled = false;  // nobody wants it any more, and it stands in no line
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
    uint32_t own_before;  // of PeerLarge::own: sent before it
  };

  // Out.
  uint32_t lent = 0;
  bool refused = false;  // a Reserve(), because of kMaxLent
  std::deque<Unsent> unsent;
  std::deque<Sent> sent;  // that are not taken, in their order
  std::deque<uint32_t>
      own;  // sequence numbers of kTaken, which the user has not sent; not acknowledged
  uint32_t own_acknowledged = 0;  // kTaken before those
  // In.
  absl::flat_hash_map<LineKey, std::deque<Incoming>> lines;         // none is empty
  absl::flat_hash_map<uint32_t, std::shared_ptr<Fetch>> under_way;  // by the endpoint's number
  uint32_t fetches = 0;                                             // not in `untold` yet
  uint32_t refusals = 0;                                            // in a row
  uint64_t held_bytes = 0;
  std::deque<uint32_t> untold;  // what was taken and not said: there was no credit
};

}  // namespace sluice::session

#endif  // SLUICE_MIDDLEWARE_SESSION_PEER_LARGE_H_
