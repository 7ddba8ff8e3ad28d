// SPDX-License-Identifier: Apache-2.0
//
// What is asked of a port, and what it tells: values, without anything of a device.
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

// What a peer reaches of the memory that a port lends.
enum class Reach : uint8_t {
  // Memory that was lent for no peer in particular, of which the peer has the capability. The keys of such memory are
  // guarded by nothing but their being unknown: a device counts them up.
  kShared,
  // Memory that was lent for this peer, and no other. The device refuses everything else, whatever keys the peer knows.
  kOwn,
};

using TransferId = uint64_t;  // never used again; 0 names none

struct TransferRequest {
  integrity::TransferKind kind = integrity::TransferKind::kWrite;
  // Memory of one's own, lent to this port (with any rights, or none).
  LeaseId local;
  uint64_t local_offset = 0;
  Capability remote;
  uint64_t remote_offset = 0;
  // Of data, signatures not counted. With protection whole blocks, both offsets at a block.
  uint64_t data_bytes = 0;
  integrity::Protection protection;  // none in both domains: plain
  int64_t deadline_ns = 0;           // of the port's clock; 0: none
  uint64_t tag = 0;                  // goes to the lender with the verdict
};

// What a lender hears of a transfer that has ended.
struct Arrival {
  integrity::TransferKind kind = integrity::TransferKind::kWrite;
  LeaseId lease;
  uint64_t tag = 0;
  uint64_t data_bytes = 0;  // that were moved well
  // OK; DATA_LOSS, with MismatchOf(); CANCELLED, by the other side; NOT_FOUND: the lease had ended before its data
  // could be looked at.
  absl::Status status;
};

struct PortOptions {
  uint32_t max_peers = 64;
  // Peers that have a queue pair for protected transfers. The one that was not used for the longest time makes room; until it has,
  // those that this side wants wait, and those that others want are made all the same.
  uint32_t max_signed_peers = 16;
  uint32_t max_leases = 256;
  uint32_t max_transfers = 256;        // open, of one's own
  uint32_t max_pieces_in_flight = 16;  // of a peer
  // Size of a piece, in bytes of data; whole blocks of 4096, at most 1 GiB. Of a protected transfer: the smaller of both ports'.
  uint32_t piece_bytes = 64 << 10;
  // How long a transfer that was stopped may take to end, before its peer is given up.
  int64_t patience_ns = 1'000'000'000;
  // A peer that does not answer to plain transfers for so long is down.
  int64_t dead_peer_ns = 1'000'000'000;
  int64_t watch_ns = 10'000'000;  // for stops whose event was lost
  // False: as if the device had none (integrity::SignedQueueOptions).
  bool offload = true;
  bool pipelining = true;
};

struct PortCounters {
  uint64_t transfers = 0;
  uint64_t pieces = 0;
  uint64_t mismatches = 0;
  uint64_t arrivals = 0;
  uint64_t found_here = 0;     // wrong data that the other side had sent as good
  uint64_t evicted = 0;        // peers
  uint64_t signed_queues = 0;  // made
  uint64_t signed_closed = 0;  // to make room for others
};

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_TRANSFER_H_
