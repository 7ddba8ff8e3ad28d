// SPDX-License-Identifier: Apache-2.0
//
// Records of large messages. Private to transport/endpoint: large.cc moves them.
//
// Purpose       Each peer from which this side has fetched has a stream for READs, beside the stream of its messages. So a READ
//               never delays a message, and a READ that is refused stops only other READs from that peer. They are
//               posted again (docs/decisions/0029).
// Ownership     The endpoint. Peers without large messages have no record.
// Limits        kLargeSlots pieces in flight, at most kPiecesOfPeer of one peer. LargeMemory limits the bytes.
#ifndef SLUICE_TRANSPORT_ENDPOINT_LARGE_H_
#define SLUICE_TRANSPORT_ENDPOINT_LARGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "transport/endpoint/endpoint.h"
#include "transport/endpoint/large_memory.h"
#include "transport/queue/target.h"

namespace sluice::endpoint {

inline constexpr uint32_t kLargeSlots = 64;
inline constexpr uint32_t kPiecesOfPeer = 8;
inline constexpr uint32_t kPieceBytes = 64 << 10;
// Flag in the cookie of a target for large messages; the other bits are the peer's index.
inline constexpr uint32_t kForLarge = 1u << 31;

// Maximum share of one peer in the fetch memory: 1 / kFetchShareOfRest of what other peers leave, or one buffer.
inline constexpr uint64_t kFetchShareOfRest = 2;
// Number of consecutive checks, dead_peer_ns apart, without progress of a peer's READs while other requests wait for them, after which
// the peer is disconnected. A dead send queue is recovered earlier (DciPool::kWatchAttempts).
inline constexpr uint8_t kMostStalls = 3;

struct PeerLarge {
  queue::Target target;    // the same DCT, another stream
  uint32_t under_way = 0;  // pieces in flight
  // Maximum number of pieces in flight: READs that both devices allow at a time, at most kPiecesOfPeer.
  uint32_t at_once = 1;
  uint64_t fetch_bytes = 0;  // sum of FetchRecord::charged of its fetches
  bool moved = false;        // since the last check: a piece arrived, or the first piece was posted
  uint8_t stalls = 0;        // consecutive checks without progress
};

// A peer whose Lend() was refused.
struct LendWait {
  PeerId peer;
  bool of_share = false;  // refused because of its own share: other peers need not wait for it
};

struct FetchRecord {
  enum class State : uint8_t {
    kNobody,
    kWaiting,  // for memory
    kMaking,   // its memory is being registered
    kReading,
    kFetched,  // owned by the user until GiveBack(), or held
  };

  State state = State::kNobody;
  bool orphan = false;  // its peer is down: no callback follows
  PeerId peer;
  RemoteMemory from;
  uint32_t buffer = LargeMemory::kNone;
  uint64_t posted = 0;          // bytes that were posted at least once
  std::vector<uint64_t> again;  // offsets of pieces to post again
  uint64_t done = 0;            // bytes fetched
  uint32_t under_way = 0;       // pieces in flight
  // Bytes of memory charged to the peer's share, until GiveBack() or HoldFetched().
  uint64_t charged = 0;
  absl::Status status;  // not OK: result of the fetch
};

// Piece of a fetch in a bulk slot.
struct Piece {
  uint32_t fetch = 0;
  uint64_t offset = 0;
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_LARGE_H_
