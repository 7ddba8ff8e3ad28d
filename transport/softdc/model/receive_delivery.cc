// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/receive_delivery.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "transport/softdc/shm/copy.h"

namespace sluice::softdc {
namespace {
constexpr uint32_t kLocalLengthVendorError = 0x68;

bool CarriesImmediate(uint8_t opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
}  // namespace

ReceiveDelivery::~ReceiveDelivery() {
  if (!published_) return;
  if (reach_.cq->armed.TryTake(reach_.link->link_id(), solicited_) && reach_.cq->event_fd) {
    const uint64_t one = 1;
    // Fails only when 2^64 events wait unread; then the receiver is awake anyhow.
    [[maybe_unused]] const ssize_t written = write(reach_.cq->event_fd.get(), &one, sizeof(one));
  }
}

ReceiveDelivery::Claim ReceiveDelivery::ClaimWqes(uint32_t want,
                                                  std::span<shm::ClaimedWqe> claimed) {
  want = std::min(want, reach_.cq->ring.max_batch());
  while (want > 1 && !reach_.cq->ring.CanPublish(want)) want /= 2;
  if (!reach_.cq->ring.CanPublish(want)) return {.why_not = WhyNot::kNoCompletionSpace};
  const shm::ClaimResult result = reach_.srq->Claim(want, reach_.link->journal, claimed);
  switch (result.status) {
    case shm::ClaimStatus::kOk:
      return {.count = result.count};
    case shm::ClaimStatus::kEmpty:
      return {.why_not = WhyNot::kNoReceive};
    case shm::ClaimStatus::kContended:
      return {.why_not = WhyNot::kNoCompletionSpace};  // others are faster: soon again, uncounted
    case shm::ClaimStatus::kBroken:
      break;
  }
  return {.why_not = WhyNot::kBroken};
}

void ReceiveDelivery::Publish(const Wqe& wqe, uint32_t wqe_index, ibv_wc_opcode opcode,
                              ibv_wc_status status, uint8_t flags) {
  shm::Cqe cqe;
  cqe.wqe_index = wqe_index;
  cqe.srq_id = reach_.srq->srq_id();
  cqe.byte_len = wqe.length_bytes;
  cqe.qp_num = reach_.descriptor->qp_num;
  cqe.src_qp = source_qp_;
  cqe.opcode = static_cast<uint8_t>(opcode);
  cqe.status = static_cast<uint8_t>(status);
  cqe.flags = flags;
  if (status != IBV_WC_SUCCESS) cqe.vendor_err = kLocalLengthVendorError;
  if (CarriesImmediate(wqe.opcode)) {
    cqe.imm_data = wqe.imm_data;
    cqe.wc_flags = IBV_WC_WITH_IMM;
  }
  if ((wqe.flags & IBV_SEND_SOLICITED) != 0) cqe.flags |= shm::kCqeSolicited;
  reach_.cq->ring.Publish(cqe);
  published_ = true;
  solicited_ |= cqe.flags != 0 || status != IBV_WC_SUCCESS;
}

void ReceiveDelivery::GiveBack(const shm::ClaimedWqe& claimed) {
  Publish(Wqe{}, claimed.wqe_index, IBV_WC_RECV, IBV_WC_SUCCESS, shm::kCqeUnused);
}

void ReceiveDelivery::PublishImmediate(const Wqe& wqe, const shm::ClaimedWqe& claimed) {
  Publish(wqe, claimed.wqe_index, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS, 0);
}

DeliveryStatus ReceiveDelivery::Locate(const shm::RemotePlace& place) {
  switch (place.kind) {
    case shm::RemotePlace::Kind::kMapped:
    case shm::RemotePlace::Kind::kPrivate:
      return DeliveryStatus::kDelivered;
    case shm::RemotePlace::Kind::kNotMapped:
      links_.AskSegment(reach_.link, place.segment);
      return DeliveryStatus::kNotMapped;
    case shm::RemotePlace::Kind::kDenied:
      break;
  }
  return DeliveryStatus::kDenied;
}

DeliveryStatus ReceiveDelivery::Move(const MessageSource& source, uint64_t source_offset,
                                     uint64_t length_bytes, const shm::RemotePlace& place,
                                     Direction direction) {
  uint64_t moved = 0;
  const auto piece = [&](std::byte* local, uint64_t size_bytes) {
    if (place.kind == shm::RemotePlace::Kind::kMapped) {
      std::byte* remote = place.address + moved;
      if (direction == Direction::kToRemote) {
        shm::CopyInOrder(remote, local, size_bytes);
      } else {
        shm::CopyInOrder(local, remote, size_bytes);
      }
      moved += size_bytes;
      return true;
    }
    const uint64_t remote = place.peer_address + moved;
    moved += size_bytes;
    return (direction == Direction::kToRemote
                ? reach_.link->WritePrivate(remote, local, size_bytes)
                : reach_.link->ReadPrivate(remote, local, size_bytes)) == 0;
  };
  if (!source.inlined.empty()) {
    auto* local = const_cast<std::byte*>(source.inlined.data()) + source_offset;
    return length_bytes == 0 || piece(local, length_bytes) ? DeliveryStatus::kDelivered
                                                           : DeliveryStatus::kFailed;
  }
  for (const ibv_sge& sge : source.sges) {
    if (length_bytes == 0) break;
    if (source_offset >= sge.length) {
      source_offset -= sge.length;
      continue;
    }
    const uint64_t size_bytes = std::min<uint64_t>(sge.length - source_offset, length_bytes);
    if (!piece(reinterpret_cast<std::byte*>(sge.addr) + source_offset, size_bytes)) {
      return DeliveryStatus::kFailed;
    }
    source_offset = 0;
    length_bytes -= size_bytes;
  }
  return DeliveryStatus::kDelivered;
}

DeliveryStatus ReceiveDelivery::Deliver(const Wqe& wqe, const MessageSource& source,
                                        const shm::ClaimedWqe& claimed) {
  if (claimed.sge_count == 1) {
    // The common case: one piece to one piece of mapped memory.
    if (source.length_bytes <= claimed.sge.length && source.sges.size() == 1) {
      const shm::RemotePlace place = reach_.link->Locate(claimed.sge);
      if (place.kind == shm::RemotePlace::Kind::kMapped) {
        shm::CopyInOrder(place.address,
                         reinterpret_cast<const std::byte*>(source.sges.front().addr),
                         source.length_bytes);
        Publish(wqe, claimed.wqe_index, IBV_WC_RECV, IBV_WC_SUCCESS, 0);
        return DeliveryStatus::kDelivered;
      }
    }
    return DeliverTo(wqe, source, claimed, {&claimed.sge, 1});
  }
  std::array<shm::Sge, shm::kMaxSrqSge> table;
  const uint32_t count = reach_.srq->Sges(claimed, table);
  return DeliverTo(wqe, source, claimed, {table.data(), count});
}

DeliveryStatus ReceiveDelivery::DeliverTo(const Wqe& wqe, const MessageSource& source,
                                          const shm::ClaimedWqe& claimed,
                                          std::span<const shm::Sge> sges) {
  uint64_t room_bytes = 0;
  for (const shm::Sge& sge : sges) room_bytes += sge.length;
  if (room_bytes < source.length_bytes) {
    Publish(wqe, claimed.wqe_index, IBV_WC_RECV, IBV_WC_LOC_LEN_ERR, 0);
    return DeliveryStatus::kTooLong;
  }
  uint64_t offset = 0;
  for (const shm::Sge& sge : sges) {
    const uint64_t size_bytes = std::min<uint64_t>(sge.length, source.length_bytes - offset);
    if (size_bytes == 0) break;
    const shm::RemotePlace place = reach_.link->Locate(sge);
    DeliveryStatus status = Locate(place);
    // A receive WQE that names no memory of its owner is the owner's fault, not a missing right.
    if (status == DeliveryStatus::kDenied) status = DeliveryStatus::kFailed;
    if (status == DeliveryStatus::kDelivered) {
      status = Move(source, offset, size_bytes, place, Direction::kToRemote);
    }
    if (status != DeliveryStatus::kDelivered) {
      GiveBack(claimed);
      return status;
    }
    offset += size_bytes;
  }
  Publish(wqe, claimed.wqe_index, IBV_WC_RECV, IBV_WC_SUCCESS, 0);
  return DeliveryStatus::kDelivered;
}

DeliveryStatus ReceiveDelivery::OneSided(const Wqe& wqe, const MessageSource& source,
                                         uint32_t access, bool write) {
  // Without a byte to move no key is looked at (IBA 9.7.5: zero-length requests skip the R_Key
  // check).
  if (source.length_bytes == 0) return DeliveryStatus::kDelivered;
  const shm::TargetDescriptor& target = *reach_.descriptor;
  if ((target.access & access) != access) return DeliveryStatus::kDenied;
  const shm::RemotePlace place =
      reach_.link->Translate(wqe.rkey, wqe.remote_address, source.length_bytes, access, target.pd);
  const DeliveryStatus status = Locate(place);
  if (status != DeliveryStatus::kDelivered) return status;
  return Move(source, 0, source.length_bytes, place,
              write ? Direction::kToRemote : Direction::kFromRemote);
}

}  // namespace sluice::softdc
