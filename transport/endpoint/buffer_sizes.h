// SPDX-License-Identifier: Apache-2.0
//
// The number of buffers of an endpoint, and their sizes.
//
// Threads       Any: a constant value.
#ifndef SLUICE_TRANSPORT_ENDPOINT_BUFFER_SIZES_H_
#define SLUICE_TRANSPORT_ENDPOINT_BUFFER_SIZES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transport/endpoint/create.h"
#include "transport/peer/credits.h"
#include "transport/peer/prefix.h"
#include "transport/peer/terms.h"
#include "transport/receive/receive_queue.h"

namespace sluice::endpoint {

// Number of control receive buffers per peer: two credit messages (one per half window), a requested
// report, a probe, an answer to a probe, and a goodbye. The proof or the answer of the handshake
// arrives before them. It is the longest control message: prefix and sealed terms.
inline constexpr uint32_t kControlBuffersPerPeer = 6;
inline constexpr uint32_t kControlBufferBytes = 128;
static_assert(kControlBufferBytes >= peer::kPrefixBytes + peer::kSealedTermsBytes);
// Maximum number of these buffers. More peers share them, because so many peers rarely send at the same time. If no buffer is free,
// the sender's device retransmits the message (receiver not ready).
inline constexpr uint32_t kMostControlBuffers = 8192;
// Number of further control buffers, for messages about lanes in both directions. Few peers have a lane, and a sender that finds no
// buffer retries.
inline constexpr uint32_t kControlBuffersForLanes = 256;

// The same if there is one peer: few messages about its lanes, its windows and the keys of this side are under way at one time.
inline constexpr uint32_t kControlBuffersForOnePeer = 32;

// Number of send buffers for control messages.
inline constexpr uint32_t kControlSlots = 256;
// Maximum number of these that a peer may hold once a quarter of them is in use. Otherwise a peer that takes no messages could hold
// all of them (docs/decisions/0046).
inline constexpr uint32_t kFewControlSlots = 4;

// Maximum number of lanes of peers that this side writes from a send ring.
inline constexpr uint32_t kSendRings = 16;  // Peer::ring has room for 31

// Room for two laps of a lane for a peer with 64 credits.
constexpr uint32_t SendRingCells(const Options& options) {
  return options.lane_slots + options.lane_slots / 4;
}
inline size_t SendRingBytes(const Options& options) {
  return size_t{SendRingCells(options)} * options.lane_slot_bytes;
}
// All send rings together take at most lane_memory_bytes, the limit for lanes that this side grants.
inline uint32_t SendRings(const Options& options) {
  const auto most = static_cast<uint32_t>(options.lane_memory_bytes / SendRingBytes(options));
  return std::min({kSendRings, options.max_peers, most});
}
inline size_t SendRingsBytes(const Options& options) {
  return SendRings(options) * SendRingBytes(options);
}

inline uint32_t BufferBytes(const Options& options) {
  return options.max_message_bytes + static_cast<uint32_t>(peer::kPrefixBytes);
}

// Behind the message is room for its stamp, or for its encoding in blocks.
inline size_t SendStrideBytes(const Options& options) {
  return (size_t{BufferBytes(options)} + 8 + options.lane_slot_bytes + 63) / 64 * 64;
}

// Number of buffers in a shared receive queue for messages, and in a receive queue for control.
constexpr uint32_t DataDepth(uint32_t srq_size) {
  return srq_size + receive::ReceiveQueue::kRefillBatch;
}
constexpr uint32_t ControlDepth(uint32_t max_peers) {
  return std::min(max_peers * kControlBuffersPerPeer, kMostControlBuffers) +
         kControlBuffersForLanes;
}
// Number of control buffers to post for `peers` peers before all of them can send. `alone`: a server is the only peer that there ever was.
// `window`: the largest of this side or of a peer. Up to kRefillBatch - 1 posted buffers may wait to be posted again. It includes as many
// messages as one peer may send before it counts as a flood, so that the others still find buffers. A server that is alone
// delays nobody but itself.
constexpr uint32_t ControlBuffers(uint32_t peers, bool alone, uint32_t window) {
  constexpr uint32_t kBatch = receive::ReceiveQueue::kRefillBatch;
  const uint32_t shares = std::min(peers, kMostControlBuffers) * kControlBuffersPerPeer;
  if (alone) return shares + kControlBuffersForOnePeer + kBatch;
  return shares + kControlBuffersForLanes + peer::ReceiveCredits::MostControl(window) + kBatch;
}
// Number of buffers in the only receive queue of an RC endpoint. It includes buffers for control messages, but not for all peers at
// once: if no buffer is free, the peer retransmits (docs/decisions/0068).
constexpr uint32_t RcDepth(uint32_t srq_size, uint32_t max_peers) {
  return DataDepth(srq_size) + std::min(ControlDepth(max_peers), std::max(srq_size, 256u));
}

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_BUFFER_SIZES_H_
