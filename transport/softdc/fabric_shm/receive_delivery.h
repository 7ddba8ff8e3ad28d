// SPDX-License-Identifier: Apache-2.0
//
// ReceiveDelivery: the far end of a transfer, executed by the sender's CPU. It takes receive WQEs, copies data, and publishes completions
// at the receiver. At the end it wakes the receiver once.
//
// Ownership     It lives for one doorbell.
// Threads       Under the link's lock.
#ifndef SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_RECEIVE_DELIVERY_H_
#define SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_RECEIVE_DELIVERY_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/softdc/loop/loop.h"
#include "transport/softdc/model/arrival.h"
#include "transport/softdc/model/grh.h"
#include "transport/softdc/model/mutation.h"
#include "transport/softdc/model/send_queue.h"
#include "transport/softdc/model/wqe.h"
#include "transport/softdc/shm/copy.h"
#include "transport/softdc/shm/kill_point.h"
#include "transport/softdc/shm/outbound_links.h"

namespace sluice::softdc {

// The local bytes of a message: inline data, or checked SGEs of memory of this process.
struct MessageSource {
  std::span<const std::byte> inlined;
  std::span<const ibv_sge> sges;
  uint32_t length_bytes = 0;
  const WqeOperands* operands = nullptr;  // of an atomic, or a datagram
};

enum class DeliveryStatus {
  kDelivered,
  kTooLong,     // longer than the receive WQE
  kDenied,      // key, range, right or protection domain
  kNotMapped,   // the segment was requested; retry later
  kFailed,      // the peer's memory cannot be accessed
  kMaybe,       // an atomic was perhaps executed: no response, and no retry
  kNoResponse,  // the peer's process is gone
};

class ReceiveDelivery {
 public:
  enum class WhyNot { kNoReceive, kNoCompletionSpace, kBroken };
  struct Claim {
    uint32_t count = 0;
    WhyNot why_not = WhyNot::kNoReceive;  // if count is 0
  };

  [[gnu::always_inline]] ReceiveDelivery(OutboundLinks& links, Target::Reach& reach,
                                         const SendQueue& source)
      : links_(links), reach_(reach), source_(source), lost_(reach.cq->armed.overrun()) {
    reach_.link->journal.BeginCopies();
    SOFTDC_KILL_POINT(kCopiesBegun);
  }
  // Ends the copies. Wakes the receiver if it sleeps and something was published.
  [[gnu::always_inline]] ~ReceiveDelivery() {
    reach_.link->journal.EndCopies();
    SOFTDC_KILL_POINT(kCopiesEnded);
    // All claimed WQEs are published, or lost to the owner too. A claim word that stayed here could match a later SRQ with the same id and
    // tickets. It would then delay the repair of other claims for as long as this link is idle.
    reach_.link->journal.Clear();
    // No program sleeps on a CQ without a channel.
    if (tell_firmware_ || (published_ && reach_.cq->event_fd)) Wake();
  }

  // Claims up to `want` receive WQEs. The caller delivers into each of them, or gives it back.
  Claim ClaimWqes(uint32_t want, std::span<shm::ClaimedWqe> claimed);
  // Executes a SEND: copies its bytes, and publishes a completion or gives the WQE back.
  DeliveryStatus Deliver(const Wqe& wqe, const MessageSource& source,
                         const shm::ClaimedWqe& claimed);
  // Fast path of Deliver: copies wqe.length_bytes from one place into one piece of mapped memory. Returns false without side effects if
  // Deliver must do it.
  bool DeliverPlain(const Wqe& wqe, const std::byte* from, const shm::ClaimedWqe& claimed);
  void GiveBack(const shm::ClaimedWqe& claimed);
  // Publishes the completion of a WRITE_WITH_IMM, after its data.
  void PublishImmediate(const Wqe& wqe, const shm::ClaimedWqe& claimed);
  // Executes a WRITE, READ or atomic on the range that the WQE names.
  DeliveryStatus OneSided(const Wqe& wqe, const MessageSource& source);
  // Fast path of OneSided for a WRITE of 1 byte or more. Returns false, without a copy, if OneSided must do it.
  bool WritePlain(const Wqe& wqe, const std::byte* from);
  // Fast path of ClaimWqes for one WQE. Returns false if ClaimWqes must do it.
  bool ClaimOne(shm::ClaimedWqe* claimed);

 private:
  // Returns whether reach_.written, checked in this doorbell, covers the WRITE. That check covered rights and domain. The key and the range
  // are compared for each WRITE.
  [[gnu::always_inline]] bool Covered(const Wqe& wqe) const {
    const shm::MappedRegion& region = reach_.written.mapped;
    const uint64_t into = wqe.remote_address - region.begin;
    const uint64_t bytes = region.end - region.begin;
    return wqe.rkey == written_key_ && into <= bytes && wqe.length_bytes <= bytes - into;
  }
  // As Covered, after a lookup of the region that the WRITE names. False: not allowed, not all mapped, or through a window, whose owner
  // counts copies one by one.
  [[gnu::always_inline]] bool Grant(const Wqe& wqe) {
    if (reach_.written.Holds(wqe.rkey)) [[likely]] {
      written_key_ = wqe.rkey;
      if (Covered(wqe)) [[likely]]
        return true;
    }
    return GrantAnew(wqe);
  }
  // Checks the WRITE with the target's table.
  [[gnu::noinline]] bool GrantAnew(const Wqe& wqe);
  // Returns the region of a receive buffer, as far as it is mapped.
  const shm::MappedRegion& Received(uint32_t key) {
    if (key != received_key_) {
      if (!reach_.received.Holds(key)) [[unlikely]]
        FindReceived(key);
      received_key_ = key;
    }
    return reach_.received.mapped;
  }
  [[gnu::noinline]] void FindReceived(uint32_t key);
  [[gnu::noinline]] void Wake();

  enum class Direction { kToRemote, kFromRemote };
  DeliveryStatus DeliverTo(const Wqe& wqe, const MessageSource& source,
                           const shm::ClaimedWqe& claimed, std::span<const shm::Sge> sges);
  // Copies source bytes to the pieces of a receive buffer, from byte `at` of the buffer on.
  DeliveryStatus Scatter(const MessageSource& source, std::span<const shm::Sge> sges, uint64_t at);
  DeliveryStatus OneSidedIn(const shm::MemoryRegionEntry& region, const Wqe& wqe,
                            const MessageSource& source);
  // Returns the region or window that contains the WQE's range, or null.
  const shm::MemoryRegionEntry* Judge(const Wqe& wqe, const MessageSource& source) const;
  // Transfer through an indirect key of the peer: as a remote key, or as a piece of a receive buffer.
  DeliveryStatus OneSidedThroughMkey(const Wqe& wqe, const MessageSource& source);
  DeliveryStatus ScatterThroughMkey(const MessageSource& source, uint64_t source_offset,
                                    const shm::Sge& sge, uint64_t length_bytes);
  DeliveryStatus RunAtomic(const Wqe& wqe, const MessageSource& source,
                           const shm::RemotePlace& place);
  DeliveryStatus Locate(const shm::RemotePlace& place);
  template <typename PlaceOf>
  DeliveryStatus MoveRange(const MessageSource& source, uint64_t source_offset,
                           uint64_t length_bytes, Direction direction, PlaceOf place_of);
  DeliveryStatus Move(const MessageSource& source, uint64_t source_offset, uint64_t length_bytes,
                      const shm::RemotePlace& place, Direction direction);
  void CopyTo(bool relaxed, std::byte* to, const std::byte* from, uint64_t size_bytes);
  DeliveryStatus MovePiece(const shm::RemotePlace& place, uint64_t into, std::byte* local,
                           uint64_t size_bytes, Direction direction);
  void Publish(const Wqe& wqe, uint32_t wqe_index, ibv_wc_opcode opcode, ibv_wc_status status,
               uint8_t flags);
  // kPlain: called by DeliverPlain.
  template <bool kPlain>
  void PublishInline(const Wqe& wqe, uint32_t wqe_index, ibv_wc_opcode opcode, ibv_wc_status status,
                     uint8_t flags);
  static bool CarriesImmediate(uint8_t opcode) {
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
  bool Datagram() const { return source_.traits().kind == QpKind::kUd; }

  OutboundLinks& links_;
  Target::Reach& reach_;
  const SendQueue& source_;
  bool lost_;                   // completions are lost: the CQ was overrun
  bool tell_firmware_ = false;  // the receiver's firmware thread
  bool published_ = false;
  bool solicited_ = false;
  // Keys for which reach_.written and reach_.received were checked in this doorbell. The result is valid until the copies end.
  static constexpr uint64_t kNoKey = UINT64_MAX;
  uint64_t written_key_ = kNoKey;
  uint64_t received_key_ = kNoKey;
};

// Defined in the header, so that the product contains only the copy.
[[gnu::always_inline]] inline void ReceiveDelivery::CopyTo(bool relaxed, std::byte* to,
                                                           const std::byte* from,
                                                           uint64_t size_bytes) {
  if constexpr (shm::kHasKillPoints) {
    const uint64_t half_bytes = size_bytes / 2;
    shm::Copy(links_.copy_order, relaxed, to, from, half_bytes);
    SOFTDC_KILL_POINT(kPayloadHalfCopied);
    shm::Copy(links_.copy_order, relaxed, to + half_bytes, from + half_bytes,
              size_bytes - half_bytes);
    SOFTDC_KILL_POINT(kPayloadCopied);
  } else {
    shm::Copy(links_.copy_order, relaxed, to, from, size_bytes);
  }
}

template <bool kPlain>
[[gnu::always_inline]] inline void ReceiveDelivery::PublishInline(
    const Wqe& wqe, uint32_t wqe_index, ibv_wc_opcode opcode, ibv_wc_status status, uint8_t flags) {
  if (lost_) return;
  shm::Cqe cqe;
  cqe.wqe_index = wqe_index;
  cqe.srq_id = reach_.srq->srq_id();
  cqe.byte_len = wqe.length_bytes;
  cqe.qp_num = reach_.descriptor->qp_num;
  cqe.src_qp = Mutated(Mutation::kSourceUnknown) ? 0 : source_.number();
  cqe.opcode = static_cast<uint32_t>(opcode);
  cqe.status = static_cast<uint32_t>(status);
  cqe.flags = flags;
  if (status == IBV_WC_LOC_LEN_ERR) cqe.vendor_err = kVendorErrorLocalLength;
  if (status == IBV_WC_LOC_PROT_ERR) cqe.vendor_err = kVendorErrorLocalProtection;
  if (CarriesImmediate(wqe.opcode)) {
    cqe.imm_data = wqe.imm_data;
    cqe.wc_flags = IBV_WC_WITH_IMM;
  }
  if (!kPlain && wqe.opcode == IBV_WR_SEND_WITH_INV) {
    cqe.imm_data = wqe.rkey;
    cqe.wc_flags = IBV_WC_WITH_INV;
    cqe.flags |= shm::kCqeInvalidates;
  }
  if (!kPlain && Datagram()) {
    cqe.byte_len += kGrhBytes;
    cqe.wc_flags |= IBV_WC_GRH;
  }
  cqe.sl = wqe.service_level;
  if ((wqe.flags & IBV_SEND_SOLICITED) != 0) cqe.flags |= shm::kCqeSolicited;
  if (reach_.cq->ring.stamped()) cqe.timestamp_ns = Loop::NowNs();
  reach_.cq->ring.Publish(cqe);
  published_ = true;
  solicited_ |=
      (cqe.flags & (shm::kCqeSolicited | shm::kCqeUnused)) != 0 || status != IBV_WC_SUCCESS;
}

[[gnu::always_inline]] inline bool ReceiveDelivery::DeliverPlain(const Wqe& wqe,
                                                                 const std::byte* from,
                                                                 const shm::ClaimedWqe& claimed) {
  if (claimed.sge_count != 1 || wqe.length_bytes > claimed.sge.length || Datagram() ||
      wqe.opcode == IBV_WR_SEND_WITH_INV) {
    return false;
  }
  const shm::MappedRegion& region = Received(claimed.sge.key);
  std::byte* const to = region.At(claimed.sge);
  if (to == nullptr) return false;
  CopyTo(region.relaxed, to, from, wqe.length_bytes);
  PublishInline</*kPlain=*/true>(wqe, claimed.wqe_index, IBV_WC_RECV, IBV_WC_SUCCESS, 0);
  return true;
}

[[gnu::always_inline]] inline bool ReceiveDelivery::ClaimOne(shm::ClaimedWqe* claimed) {
  if (lost_ || !reach_.cq->ring.CanPublish(1)) return false;
  const shm::ClaimResult result = reach_.srq->ClaimOne(reach_.link->journal, claimed);
  tell_firmware_ |= result.limit_reached;
  return result.status == shm::ClaimStatus::kOk;
}

[[gnu::always_inline]] inline bool ReceiveDelivery::WritePlain(const Wqe& wqe,
                                                               const std::byte* from) {
  if (!Covered(wqe) && !Grant(wqe)) [[unlikely]]
    return false;
  const shm::MappedRegion& region = reach_.written.mapped;
  CopyTo(region.relaxed, reinterpret_cast<std::byte*>(region.address + wqe.remote_address), from,
         wqe.length_bytes);
  return true;
}

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_RECEIVE_DELIVERY_H_
