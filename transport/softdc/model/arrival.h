// SPDX-License-Identifier: Apache-2.0
//
// Checks a request at its target: one set of pure functions for every fabric. Their inputs are in the target's arena. Fabrics differ in the
// caller, and in when and how the bytes move afterwards.
//
//   JudgeRequest     state, number, type, partition, key, rights, alignment, size of packets
//   JudgeRange       rkey, range, right, protection domain, of memory that the request names
//   JudgeLength      room in the receive WQE
//   StatusOf         status of the requester's completion
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_ARRIVAL_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_ARRIVAL_H_

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>

#include "transport/softdc/config/dials.h"
#include "transport/softdc/model/memory_window.h"
#include "transport/softdc/model/mtu.h"
#include "transport/softdc/model/mutation.h"
#include "transport/softdc/model/pkey.h"
#include "transport/softdc/model/wqe.h"
#include "transport/softdc/shm/layout.h"

namespace sluice::softdc {

enum class Verdict : uint8_t {
  kAccepted,
  kNoResponse,      // dropped without a word
  kAccessDenied,    // NAK remote access error
  kInvalidRequest,  // NAK invalid request
};

// What a connected queue pair expects of its peer, and sends along.
inline uint64_t ConnectedKey(NodeId node, uint32_t number) { return uint64_t{node} << 32 | number; }

// IBV_ACCESS_REMOTE_* that an operation needs; 0 for a SEND.
inline uint32_t NeededAccess(uint8_t opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_ACCESS_REMOTE_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_ACCESS_REMOTE_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_ACCESS_REMOTE_ATOMIC;
    default:
      return 0;
  }
}

// `opcode` is the WQE's: a caller that knows it pays for no other.
[[gnu::always_inline]] inline Verdict JudgeRequest(const Wqe& wqe, uint8_t opcode,
                                                   shm::TargetType meant_for,
                                                   const shm::TargetDescriptor& target,
                                                   const Dials& dials, ibv_mtu path_mtu,
                                                   uint16_t pkey) {
  if (target.state.load(std::memory_order_acquire) !=
          static_cast<uint32_t>(shm::TargetState::kReadyToReceive) ||
      target.qp_num != wqe.target_number || target.type != static_cast<uint32_t>(meant_for)) {
    return Verdict::kNoResponse;
  }
  if (!SamePartition(pkey, static_cast<uint16_t>(target.pkey)) && !Mutated(Mutation::kAnyPkey)) {
    return Verdict::kNoResponse;
  }
  // What a mistake in the check of each kind's key would take.
  const bool taken = (meant_for == shm::TargetType::kDct && Mutated(Mutation::kAnyDcKey)) ||
                     (meant_for == shm::TargetType::kUd && Mutated(Mutation::kAnyQkey)) ||
                     (meant_for == shm::TargetType::kRc && Mutated(Mutation::kAnyPeer));
  if (target.key.load(std::memory_order_relaxed) != wqe.key && !taken) {
    return meant_for == shm::TargetType::kDct &&
                   dials.unknowns.wrong_dc_key == WrongDcKey::kRemoteAccessError
               ? Verdict::kAccessDenied
               : Verdict::kNoResponse;
  }
  // Without a byte to move no right is needed and no key looked at (IBA 9.7.5).
  const bool needs_none = wqe.length_bytes == 0 || Mutated(Mutation::kSkipTargetRights);
  const uint32_t needed = needs_none ? 0 : NeededAccess(opcode);
  if ((target.access.load(std::memory_order_relaxed) & needed) != needed) {
    // An RC queue pair that is not set up for an operation does not know it (IBA 9.7.4.1).
    return meant_for == shm::TargetType::kRc ? Verdict::kInvalidRequest : Verdict::kAccessDenied;
  }
  if (IsAtomic(opcode) && wqe.remote_address % sizeof(uint64_t) != 0 &&
      !Mutated(Mutation::kAnyAlignment)) {
    return Verdict::kInvalidRequest;
  }
  // All packets of a request but its last one have the size of the path MTU (IBA 9.7.4.1): a target with another one takes
  // none of more than a packet. What a READ returns is judged here too.
  const bool acknowledged = meant_for == shm::TargetType::kDct || meant_for == shm::TargetType::kRc;
  if (acknowledged && UnlikeMtus(path_mtu, target.path_mtu) &&
      wqe.length_bytes > MtuBytes(std::min<uint32_t>(path_mtu, target.path_mtu)) &&
      !Mutated(Mutation::kAnyMtu)) {
    return Verdict::kInvalidRequest;
  }
  return Verdict::kAccepted;
}
inline Verdict JudgeRequest(const Wqe& wqe, shm::TargetType meant_for,
                            const shm::TargetDescriptor& target, const Dials& dials,
                            ibv_mtu path_mtu, uint16_t pkey) {
  return JudgeRequest(wqe, wqe.opcode, meant_for, target, dials, path_mtu, pkey);
}

// The region or window that `rkey` names in the target's table, if it covers the range, belongs to
// `pd`, grants all of `access` and may be used through that queue pair. Null:
// Verdict::kAccessDenied.
inline const shm::MemoryRegionEntry* JudgeRange(std::span<const shm::MemoryRegionEntry> regions,
                                                uint32_t rkey, uint64_t address,
                                                uint64_t length_bytes, uint32_t access, uint32_t pd,
                                                uint32_t qp_number) {
  const uint32_t index = rkey >> 8;
  if (rkey == 0 || index >= regions.size()) return nullptr;
  const shm::MemoryRegionEntry& region = regions[index];
  const uint64_t into = address - region.address;
  if ((region.key.load(std::memory_order_acquire) != rkey && !Mutated(Mutation::kSkipRkeyCheck)) ||
      (region.pd != pd && !Mutated(Mutation::kSkipPdCheck)) || (region.access & access) != access ||
      !MayPass(region, qp_number) || address < region.address || into > region.length_bytes ||
      length_bytes > region.length_bytes - into) {
    return nullptr;
  }
  return &region;
}

inline const shm::MemoryRegionEntry* JudgeRange(std::span<const shm::MemoryRegionEntry> regions,
                                                uint32_t rkey, uint64_t address,
                                                uint64_t length_bytes, uint32_t access,
                                                const shm::TargetDescriptor& target) {
  return JudgeRange(regions, rkey, address, length_bytes, access, target.pd, target.qp_num);
}

// Room in bytes, the 40 of a datagram's GRH taken off already.
inline Verdict JudgeLength(uint64_t room_bytes, uint32_t length_bytes) {
  return length_bytes <= room_bytes || Mutated(Mutation::kTooLongIsCut) ? Verdict::kAccepted
                                                                        : Verdict::kInvalidRequest;
}

// Whether the request brings its target down with it: an RC responder goes to ERR, a DCT is
// undisturbed, and unacknowledged requests are dropped.
inline bool BringsDown(Verdict verdict, shm::TargetType target) {
  const bool stops = target == shm::TargetType::kRc && !Mutated(Mutation::kBadRequestStopsNobody);
  return (stops || Mutated(Mutation::kBadRequestStopsDct)) &&
         (verdict == Verdict::kAccessDenied || verdict == Verdict::kInvalidRequest);
}

struct CompletionStatus {
  ibv_wc_status status;
  uint32_t vendor_error;
};
// kNoResponse after all retries.
inline CompletionStatus StatusOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kAccepted:
      return {IBV_WC_SUCCESS, 0};
    case Verdict::kNoResponse:
      if (Mutated(Mutation::kSilenceIsAccessError)) break;
      return {IBV_WC_RETRY_EXC_ERR, kVendorErrorRetryExceeded};
    case Verdict::kAccessDenied:
      return {IBV_WC_REM_ACCESS_ERR, kVendorErrorRemoteAccess};
    case Verdict::kInvalidRequest:
      return {IBV_WC_REM_INV_REQ_ERR, kVendorErrorRemoteInvalidRequest};
  }
  return {IBV_WC_GENERAL_ERR, 0};
}

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_ARRIVAL_H_
