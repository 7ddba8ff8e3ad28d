// SPDX-License-Identifier: Apache-2.0
//
// What two device contexts say to each other on the control socket of a block of QP numbers
// (SOCK_SEQPACKET, one ControlMessage a packet, descriptors beside it):
//
//   requester                              owner of the number
//   kHello {version, my context id}   ->
//                                     <-   kHello {context id, link id, journal offset} + arena, bell
//   kResolve {qp number}              ->
//                                     <-   kResolve {descriptor, ring, capacity, cq id} [+ event descriptor]
//   kSegment {segment id}             ->
//                                     <-   kSegment {size} + segment
//   kBadRequest {qp number, event}    ->        (no answer) my request has brought your RC queue pair down
//                                     <-   kForget {round}   forget the targets of mine that are gone
//   kForget {round}                   ->        (the answer) nothing of mine looks at them
//
// An answer repeats the kind and the number asked for; `error` is an errno, 0 for yes. To a hello of another
// version it is EPROTONOSUPPORT, with the owner's version beside it: the first four fields are those of all
// versions. To a kResolve it is ESTALE when the owner has given back the block of that number: ask its present
// owner. End of file on the socket is the death of the other context.
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
