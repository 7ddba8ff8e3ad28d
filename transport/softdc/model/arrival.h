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
  kNoResponse,      // dropped without a response
  kAccessDenied,    // NAK remote access error
  kInvalidRequest,  // NAK invalid request
};

// Returns the key that identifies a connected queue pair to its peer. The sender puts it into each request; the target compares it.
inline uint64_t ConnectedKey(NodeId node, uint32_t number) { return uint64_t{node} << 32 | number; }

// Returns the IBV_ACCESS_REMOTE_* right that an operation needs, or 0 if it needs none (SEND).
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

// Checks a request, except the range of its memory and the length of the receive WQE. `opcode` must be wqe.opcode. If the caller passes a
// constant, the compiler removes the code of other opcodes.
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
  // Mutations of the key check: each accepts a wrong key.
  const bool taken = (meant_for == shm::TargetType::kDct && Mutated(Mutation::kAnyDcKey)) ||
                     (meant_for == shm::TargetType::kUd && Mutated(Mutation::kAnyQkey)) ||
                     (meant_for == shm::TargetType::kRc && Mutated(Mutation::kAnyPeer));
  if (target.key.load(std::memory_order_relaxed) != wqe.key && !taken) {
    return meant_for == shm::TargetType::kDct &&
                   dials.unknowns.wrong_dc_key == WrongDcKey::kRemoteAccessError
               ? Verdict::kAccessDenied
               : Verdict::kNoResponse;
  }
  // A request of 0 bytes needs no right, and its key is not checked (IBA 9.7.5).
  const bool needs_none = wqe.length_bytes == 0 || Mutated(Mutation::kSkipTargetRights);
  const uint32_t needed = needs_none ? 0 : NeededAccess(opcode);
  if ((target.access.load(std::memory_order_relaxed) & needed) != needed) {
    // An RC queue pair without the right for an operation rejects it as invalid request (IBA 9.7.4.1).
    return meant_for == shm::TargetType::kRc ? Verdict::kInvalidRequest : Verdict::kAccessDenied;
  }
  if (IsAtomic(opcode) && wqe.remote_address % sizeof(uint64_t) != 0 &&
      !Mutated(Mutation::kAnyAlignment)) {
    return Verdict::kInvalidRequest;
  }
  // All packets of a request except the last have the size of the path MTU (IBA 9.7.4.1). A target with another path MTU therefore rejects
  // requests of more than one packet. The response to a READ is checked here too.
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

// Returns the region or window that `rkey` names in the target's table. It must cover the range, belong to `pd`, grant all of `access` and
// be usable through `qp_number`. Otherwise returns null: the verdict is Verdict::kAccessDenied.
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

// `room_bytes`: room for the payload. The caller has subtracted the 40 bytes of a datagram's GRH.
inline Verdict JudgeLength(uint64_t room_bytes, uint32_t length_bytes) {
  return length_bytes <= room_bytes || Mutated(Mutation::kTooLongIsCut) ? Verdict::kAccepted
                                                                        : Verdict::kInvalidRequest;
}

// Returns whether the request moves its target to ERR. Only an RC responder does: a DCT stays usable, and unacknowledged requests are
// dropped.
inline bool BringsDown(Verdict verdict, shm::TargetType target) {
  const bool stops = target == shm::TargetType::kRc && !Mutated(Mutation::kBadRequestStopsNobody);
  return (stops || Mutated(Mutation::kBadRequestStopsDct)) &&
         (verdict == Verdict::kAccessDenied || verdict == Verdict::kInvalidRequest);
}

struct CompletionStatus {
  ibv_wc_status status;
  uint32_t vendor_error;
};
// Returns the status of the requester's completion. For kNoResponse: the status after all retries.
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
