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
#include "transport/peer/prefix.h"
#include "transport/peer/terms.h"
#include "transport/receive/receive_queue.h"

namespace sluice::endpoint {

// A credit message per half window, at most two unread, one that was asked for, a probe, an answer to
// one, and a goodbye; a proof or an answer comes before those. It is the longest: prefix and sealed
// terms.
inline constexpr uint32_t kControlBuffersPerPeer = 6;
inline constexpr uint32_t kControlBufferBytes = 128;
static_assert(kControlBufferBytes >= peer::kPrefixBytes + peer::kSealedTermsBytes);
// Peers beyond share what there is: it is unlikely that so many speak at the same time. A message that finds no buffer is repeated
// by the device of its sender (receiver not ready).
inline constexpr uint32_t kMostControlBuffers = 8192;
// Words about lanes, in either direction: few peers have one, and who finds no buffer tries again.
inline constexpr uint32_t kControlBuffersForLanes = 256;

// Send buffers for control messages.
inline constexpr uint32_t kControlSlots = 256;

// Lanes of other sides that this one writes from a ring of its own.
inline constexpr uint32_t kSendRings = 16;  // Peer::ring has room for 31

// Room for two laps of a lane for a peer with 64 credits.
constexpr uint32_t SendRingCells(const Options& options) {
  return options.lane_slots + options.lane_slots / 4;
}
inline size_t SendRingBytes(const Options& options) {
  return size_t{SendRingCells(options)} * options.lane_slot_bytes;
}
// All of them take no more memory than lanes that this side grants.
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

// Behind a message is room for its stamp, or for its form in blocks.
inline size_t SendStrideBytes(const Options& options) {
  return (size_t{BufferBytes(options)} + 8 + options.lane_slot_bytes + 63) / 64 * 64;
}

// Buffers of a shared receive queue for messages, and of one for control.
constexpr uint32_t DataDepth(uint32_t srq_size) {
  return srq_size + receive::ReceiveQueue::kRefillBatch;
}
constexpr uint32_t ControlDepth(uint32_t max_peers) {
  return std::min(max_peers * kControlBuffersPerPeer, kMostControlBuffers) +
         kControlBuffersForLanes;
}
// Of an RC endpoint's only receive queue. Control messages have buffers of their own, but not for all peers at once: a peer whose
// message finds none sends it again (docs/decisions/0068).
constexpr uint32_t RcDepth(uint32_t srq_size, uint32_t max_peers) {
  return DataDepth(srq_size) + std::min(ControlDepth(max_peers), std::max(srq_size, 256u));
}

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_BUFFER_SIZES_H_
