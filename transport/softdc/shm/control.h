// SPDX-License-Identifier: Apache-2.0
//
// Messages between two device contexts on the control socket of a block of QP numbers. The socket is
// SOCK_SEQPACKET and carries one ControlMessage per packet, with descriptors as ancillary data:
//
//   requester                              owner of the number
//   kHello {version, context id}     ->
//                                     <-   kHello {context id, link id, journal offset} + arena, bell
//   kResolve {qp number}              ->
//                                     <-   kResolve {descriptor, ring, capacity, cq id} [+ event descriptor]
//   kSegment {segment id}             ->
//                                     <-   kSegment {size} + segment
//   kBadRequest {qp number, event}    ->        (no answer) a request of the requester failed your RC queue pair
//                                     <-   kForget {round}   drop my targets that are gone
//   kForget {round}                   ->        (the answer) the requester no longer accesses these targets
//
// An answer repeats the kind and the number of the request. `error` is an errno; 0 means success. The answer
// to a hello of another version is EPROTONOSUPPORT, together with the version of the owner. The first four
// fields are the same in all versions. The answer to a kResolve is ESTALE if the owner has released the block
// of that number: send the request to the present owner of the block. End of file on the socket means that
// the other context has ended.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_CONTROL_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_CONTROL_H_

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

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_CONTROL_H_
