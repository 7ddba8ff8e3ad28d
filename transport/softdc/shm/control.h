// SPDX-License-Identifier: Apache-2.0
//
// Messages between two device contexts on the control socket of a block of QP numbers. The socket is
// SOCK_SEQPACKET and carries one ControlMessage per packet, with descriptors as ancillary data. Only the answer
// to a hello may have more in its packet:
//
//   requester                              owner of the number
//   kHello {version, context id, qp} ->
//                                     <-   kHello {context id, link id, journal offset} + arena, bell
//                                          [kSegment + segment]...  [kResolve]...  [+ event descriptor]
//   kResolve {qp number}              ->
//                                     <-   kResolve {descriptor, ring, capacity, cq id} [+ event descriptor]
//   kSegment {segment id}             ->
//                                     <-   kSegment {size} + segment
//   kBadRequest {qp number, event}    ->        (no answer) a request of the requester failed your RC queue pair
//                                     <-   kForget {round}   drop my targets that are gone
//   kForget {round}                   ->        (the answer) the requester no longer accesses these targets
//
// A hello names the QP number that the requester needs, or 0. If a QP of the owner has that number, the answer to
// the hello carries the answers to the questions that the requester would ask next: first the segments, in the
// order of their ids, then the targets, and the named one last: a message to it may complete at once, and its
// sender then finds the others too. Ids that are left out below the last one have no segment. All these targets
// complete into one CQ, so its event descriptor is there once. The packet is sent completely, or the plain answer
// is sent instead. The requester asks for what it has not received. A hello with 0 gets the plain answer.
//
// An answer repeats the kind and the number of the request. `error` is an errno; 0 means success. The answer
// to a hello of another version is EPROTONOSUPPORT, together with the version of the owner. The first four
// fields are the same in all versions. The answer to a kResolve is ESTALE if the owner has released the block
// of that number: send the request to the present owner of the block. End of file on the socket means that
// the other context has ended.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_CONTROL_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_CONTROL_H_

#include <cstddef>
#include <cstdint>

namespace sluice::softdc::shm {

inline constexpr uint32_t kControlMagic = 0x31636473;  // "sdc1"

enum class ControlKind : uint32_t {
  kHello = 1,
  kResolve = 2,
  kSegment = 3,
  kBadRequest = 4,
  kForget = 5
};

struct ControlMessage {
  uint32_t magic = kControlMagic;
  uint32_t layout_version = 0;
  ControlKind kind = ControlKind::kHello;
  int32_t error = 0;  // kBadRequest: the ibv_event_type that follows, or -1
  uint64_t context_id = 0;
  uint32_t number = 0;  // QP number, segment id or round
  uint32_t link_id = 0;
  uint32_t cq_id = 0;
  uint32_t ring_capacity = 0;
  uint64_t object_offset = 0;  // journal, or target descriptor
  uint64_t ring_offset = 0;
  uint64_t size_bytes = 0;
};
static_assert(sizeof(ControlMessage) == 64);

// Maximum number of answers that the answer to a hello carries.
inline constexpr size_t kMaxCarriedSegments = 8;
inline constexpr size_t kMaxCarriedTargets = 4;
inline constexpr size_t kMaxPacketMessages = 1 + kMaxCarriedSegments + kMaxCarriedTargets;

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_CONTROL_H_
