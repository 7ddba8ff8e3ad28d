// SPDX-License-Identifier: Apache-2.0
//
// Records of large messages. Private to transport/endpoint: large.cc moves them.
//
// Purpose       Each peer from which this side has fetched has a stream for READs, beside the stream of its messages. So a READ
//               never delays a message, and a READ that is refused stops only other READs from that peer. They are
//               posted again (docs/decisions/0029).
// Ownership     The endpoint. Peers without large messages have no record.
// Limits        kLargeSlots pieces in flight, kPiecesOfPeer of them of one peer; bytes by LargeMemory.
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
// In the cookie of a target that is for large messages, beside the peer's index.
inline constexpr uint32_t kForLarge = 1u << 31;

// Share of fetch memory: 1 / kFetchShareOfRest of what other peers leave, or one buffer.
inline constexpr uint64_t kFetchShareOfRest = 2;
// Looks in a row, dead_peer_ns apart, that find no progress of a peer's reads while others wait for them: it is ended. A send queue
// that has died is recovered before (DciPool::kWatchAttempts).
inline constexpr uint8_t kMostStalls = 3;

struct PeerLarge {
  queue::Target target;    // the same DCT, another stream
  uint32_t under_way = 0;  // pieces
  uint32_t at_once =
      1;  // of them: as many as the peer's device answers at a time, kPiecesOfPeer at most
  uint64_t fetch_bytes = 0;  // memory of its fetches, until the user has consumed them
  bool moved = false;        // since the last look: a piece has come, or the first one was posted
  uint8_t stalls = 0;        // looks in a row without
};

// A peer whose Lend() was refused.
struct LendWait {
  PeerId peer;
  bool of_share = false;  // by what it has itself: others need not wait for it
};

struct FetchRecord {
  enum class State : uint8_t {
    kNobody,
    kWaiting,  // for memory
    kMaking,   // its memory is being registered
    kReading,
    kFetched,  // the user's, until GiveBack(); or held
  };

  State state = State::kNobody;
  bool orphan = false;  // its peer is down: nobody is told
  PeerId peer;
  RemoteMemory from;
  uint32_t buffer = LargeMemory::kNone;
  uint64_t posted = 0;          // bytes that have been, once
  std::vector<uint64_t> again;  // pieces that have to be posted again
  uint64_t done = 0;            // bytes
  uint32_t under_way = 0;       // pieces
  uint64_t charged = 0;  // bytes of memory, to the peer's share, until GiveBack() or HoldFetched()
  absl::Status status;   // not OK: what it ends with
};

// What a bulk slot carries.
struct Piece {
  uint32_t fetch = 0;
  uint64_t offset = 0;
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_LARGE_H_
