// SPDX-License-Identifier: Apache-2.0
//
// Requests, results, options and counters of a port (bulk/port.h).
//
// Ownership     Values, without resources of a device.
#ifndef SLUICE_MIDDLEWARE_BULK_TRANSFER_H_
#define SLUICE_MIDDLEWARE_BULK_TRANSFER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "middleware/bulk/capability.h"
#include "transport/integrity/protection.h"

namespace sluice::bulk {

struct PeerId {
  uint32_t index = 0;
  uint32_t generation = 0;  // 0 never names a peer

  friend bool operator==(const PeerId&, const PeerId&) = default;
};

// Memory of a port that a peer can access.
enum class Reach : uint8_t {
  // Memory that was lent to no peer in particular, if the peer has the capability. Keys of such
  // memory are guessable: the device counts them up.
  kShared,
  // Only memory that was lent to this peer. The device refuses all other memory, whatever keys the
  // peer knows. Needs DC.
  kOwn,
};

using TransferId = uint64_t;  // never reused; 0: none

struct TransferRequest {
  integrity::TransferKind kind = integrity::TransferKind::kWrite;
  // Memory of this side, lent to this port (with any rights, or none).
  LeaseId local;
  uint64_t local_offset = 0;
  Capability remote;
  uint64_t remote_offset = 0;
  // Number of bytes to transfer, without signatures. With protection: whole blocks, and both
  // offsets at the start of a block.
  uint64_t data_bytes = 0;
  integrity::Protection protection;  // default: none
  int64_t deadline_ns = 0;           // in the port's clock; 0: none
  uint64_t tag = 0;                  // sent to the lender with the result
};

// A peer's transfer that has ended, as reported to the lender of the memory.
struct Arrival {
  integrity::TransferKind kind = integrity::TransferKind::kWrite;
  LeaseId lease;
  uint64_t tag = 0;
  uint64_t data_bytes = 0;  // transferred without error
  // OK; DATA_LOSS, with MismatchOf(); CANCELLED: the other side cancelled it; NOT_FOUND: the lease
  // ended before its data could be checked.
  absl::Status status;
};

struct PortOptions {
  uint32_t max_peers = 64;  // maximum number of joined peers; at least 1
  // Maximum number of peers with a queue pair for protected transfers; at least 1. At the limit the
  // queue pair that was unused for the longest time is closed. Until it is closed, transfers of
  // this side wait; queue pairs that peers request are created beyond the limit.
  uint32_t max_signed_peers = 16;
  uint32_t max_leases = 256;           // maximum number of leases; at least 1
  uint32_t max_transfers = 256;        // maximum number of open transfers of this side; at least 1
  uint32_t max_pieces_in_flight = 16;  // per peer; 1 to 16384
  // Size of a piece in bytes of data. A multiple of 4096; at most 1 GiB. For protected transfers
  // the lower value of both ports applies.
  uint32_t piece_bytes = 64 << 10;
  // Time in nanoseconds after which a stopped transfer that has not ended disconnects its peer. 0
  // or more.
  int64_t patience_ns = 1'000'000'000;
  // Time in nanoseconds after which a peer that does not answer plain transfers is declared dead.
  // More than 0.
  int64_t dead_peer_ns = 1'000'000'000;
  // Time in nanoseconds for which transfers wait for the other side to join, on a device without DC.
  // Then the peer is disconnected. More than 0.
  int64_t join_ns = 10'000'000'000;
  int64_t watch_ns = 10'000'000;  // interval of the check for lost stop events
  // False: do not use the device's feature (integrity::SignedQueueOptions).
  bool offload = true;
  bool pipelining = true;
};

struct PortCounters {
  uint64_t transfers = 0;
  uint64_t pieces = 0;
  uint64_t mismatches = 0;
  uint64_t arrivals = 0;
  uint64_t found_here = 0;     // damaged data that the other side had not detected
  uint64_t evicted = 0;        // peers disconnected to admit others
  uint64_t signed_queues = 0;  // queue pairs created
  uint64_t signed_closed = 0;  // queue pairs closed to admit others
};

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_TRANSFER_H_
