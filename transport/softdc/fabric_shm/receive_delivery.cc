// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/fabric_shm/receive_delivery.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "transport/softdc/fabric_shm/mkey_delivery.h"
#include "transport/softdc/loop/loop.h"
#include "transport/softdc/model/arrival.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/grh.h"
#include "transport/softdc/model/mutation.h"
#include "transport/softdc/shm/copy.h"
#include "transport/softdc/shm/kill_point.h"

namespace sluice::softdc {
namespace {
DeliveryStatus StatusOf(MkeyStatus status) {
  switch (status) {
    case MkeyStatus::kGood:
      return DeliveryStatus::kDelivered;
    case MkeyStatus::kDenied:
      return DeliveryStatus::kDenied;
    case MkeyStatus::kAgain:
      return DeliveryStatus::kNotMapped;
    case MkeyStatus::kFailed:
      return DeliveryStatus::kFailed;
    case MkeyStatus::kNobody:
      break;
  }
  return DeliveryStatus::kNoResponse;
}

DeliveryStatus StatusOf(shm::PrivateCopy copy) {
  switch (copy) {
    case shm::PrivateCopy::kDone:
      return DeliveryStatus::kDelivered;
    case shm::PrivateCopy::kAgain:
      return DeliveryStatus::kNotMapped;
    case shm::PrivateCopy::kRefused:
      return DeliveryStatus::kFailed;
    case shm::PrivateCopy::kMaybe:
      return DeliveryStatus::kMaybe;
    case shm::PrivateCopy::kNobody:
      break;
  }
  return DeliveryStatus::kNoResponse;
}

// [offset, offset + length) of the message, in one piece.
std::vector<std::byte> BytesOf(const MessageSource& source, uint64_t offset,
                               uint64_t length_bytes) {
  std::vector<std::byte> bytes;
  bytes.reserve(length_bytes);
  const auto append = [&](const std::byte* from, uint64_t size_bytes) {
    const uint64_t skipped = std::min(offset, size_bytes);
    offset -= skipped;
    const uint64_t taken = std::min(size_bytes - skipped, length_bytes - bytes.size());
    bytes.insert(bytes.end(), from + skipped, from + skipped + taken);
  };
  append(source.inlined.data(), source.inlined.size());
  for (const ibv_sge& sge : source.sges) {
    append(reinterpret_cast<const std::byte*>(sge.addr), sge.length);
  }
  return bytes;
}

}  // namespace

void ReceiveDelivery::Wake() {
  if (tell_firmware_) {
    reach_.link->RingFirmware();
    SOFTDC_KILL_POINT(kFirmwareRung);
  }
  if (!published_ || !reach_.cq->event_fd) return;
  if (reach_.cq->armed.TryTake(reach_.link->link_id(), solicited_)) {
    const uint64_t one = 1;
    // Fails only with 2^64 unread events. The receiver is then awake anyway.
    [[maybe_unused]] const ssize_t written = write(reach_.cq->event_fd.get(), &one, sizeof(one));
    SOFTDC_KILL_POINT(kBellRung);
  }
}

ReceiveDelivery::Claim ReceiveDelivery::ClaimWqes(uint32_t want,
                                                  std::span<shm::ClaimedWqe> claimed) {
  if (!lost_) {
    want = std::min(want, reach_.cq->ring.max_batch());
    while (want > 1 && !reach_.cq->ring.CanPublish(want)) want /= 2;
    if (!reach_.cq->ring.CanPublish(want)) {
      if (reach_.cq->armed.waits_when_full() || reach_.cq->ring.narrow()) {
        return {.why_not = WhyNot::kNoCompletionSpace};
      }
      tell_firmware_ |= reach_.cq->armed.Overrun();
      lost_ = true;
    }
  }
  const shm::ClaimResult result = reach_.srq->Claim(want, reach_.link->journal, claimed);
  switch (result.status) {
    case shm::ClaimStatus::kOk:
      tell_firmware_ |= result.limit_reached;
      return {.count = result.count};
    case shm::ClaimStatus::kEmpty:
      return {.why_not = WhyNot::kNoReceive};
    case shm::ClaimStatus::kContended:
      // Other senders were faster: retry soon. The retry is not counted.
      return {.why_not = WhyNot::kNoCompletionSpace};
    case shm::ClaimStatus::kBroken:
      break;
  }
  return {.why_not = WhyNot::kBroken};
}

void ReceiveDelivery::Publish(const Wqe& wqe, uint32_t wqe_index, ibv_wc_opcode opcode,
                              ibv_wc_status status, uint8_t flags) {
  PublishInline</*kPlain=*/false>(wqe, wqe_index, opcode, status, flags);
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

// The peer may have the range in several pieces. place_of(into, length) returns the first piece of the rest.
template <typename PlaceOf>
DeliveryStatus ReceiveDelivery::MoveRange(const MessageSource& source, uint64_t source_offset,
                                          uint64_t length_bytes, Direction direction,
                                          PlaceOf place_of) {
  for (uint64_t into = 0; into < length_bytes;) {
    const shm::RemotePlace place = place_of(into, length_bytes - into);
    DeliveryStatus status = Locate(place);
    if (status == DeliveryStatus::kDelivered) {
      status = Move(source, source_offset + into, place.length_bytes, place, direction);
    }
    if (status != DeliveryStatus::kDelivered) return status;
    into += place.length_bytes;
  }
  return DeliveryStatus::kDelivered;
}

DeliveryStatus ReceiveDelivery::MovePiece(const shm::RemotePlace& place, uint64_t into,
                                          std::byte* local, uint64_t size_bytes,
                                          Direction direction) {
  const bool to_remote = direction == Direction::kToRemote;
  if (place.kind != shm::RemotePlace::Kind::kMapped) {
    return StatusOf(to_remote ? reach_.link->WritePrivate(place, into, local, size_bytes)
                              : reach_.link->ReadPrivate(place, into, local, size_bytes));
  }
  if (to_remote) {
    CopyTo(place.relaxed, place.address + into, local, size_bytes);
  } else {
    shm::Copy(links_.copy_order, /*relaxed=*/false, local, place.address + into, size_bytes);
  }
  return DeliveryStatus::kDelivered;
}

DeliveryStatus ReceiveDelivery::Move(const MessageSource& source, uint64_t source_offset,
                                     uint64_t length_bytes, const shm::RemotePlace& place,
                                     Direction direction) {
  if (length_bytes == 0) return DeliveryStatus::kDelivered;
  if (!source.inlined.empty()) {
    auto* local = const_cast<std::byte*>(source.inlined.data()) + source_offset;
    return MovePiece(place, 0, local, length_bytes, direction);
  }
  uint64_t moved = 0;
  for (const ibv_sge& sge : source.sges) {
    if (moved == length_bytes) break;
    if (source_offset >= sge.length) {
      source_offset -= sge.length;
      continue;
    }
    const uint64_t size_bytes =
        std::min<uint64_t>(sge.length - source_offset, length_bytes - moved);
    auto* local = reinterpret_cast<std::byte*>(sge.addr) + source_offset;
    const DeliveryStatus status = MovePiece(place, moved, local, size_bytes, direction);
    if (status != DeliveryStatus::kDelivered) return status;
    source_offset = 0;
    moved += size_bytes;
  }
  return DeliveryStatus::kDelivered;
}

DeliveryStatus ReceiveDelivery::Deliver(const Wqe& wqe, const MessageSource& source,
                                        const shm::ClaimedWqe& claimed) {
  if (wqe.opcode == IBV_WR_SEND_WITH_INV &&
      !MayInvalidateArriving(reach_.link->regions(), wqe.rkey, reach_.descriptor->pd,
                             reach_.descriptor->qp_num)) {
    GiveBack(claimed);
    return DeliveryStatus::kDenied;
  }
  if (claimed.sge_count == 1) return DeliverTo(wqe, source, claimed, {&claimed.sge, 1});
  std::array<shm::Sge, shm::kMaxSrqSge> table;
  const uint32_t count = reach_.srq->Sges(claimed, table);
  return DeliverTo(wqe, source, claimed, {table.data(), count});
}

DeliveryStatus ReceiveDelivery::DeliverTo(const Wqe& wqe, const MessageSource& source,
                                          const shm::ClaimedWqe& claimed,
                                          std::span<const shm::Sge> sges) {
  const uint32_t header_bytes = Datagram() ? kGrhBytes : 0;
  uint64_t room_bytes = 0;
  for (const shm::Sge& sge : sges) room_bytes += sge.length;
  if (room_bytes < header_bytes ||
      JudgeLength(room_bytes - header_bytes, source.length_bytes) != Verdict::kAccepted) {
    const Dials& dials = source_.context().dials();
    // A message of UC or UD that is too long is dropped. So is a message to a DCT, if the dial says so.
    if (!source_.traits().acknowledged ||
        (source_.traits().kind == QpKind::kDci &&
         dials.unknowns.too_long_at_target == TooLongAtTarget::kSilent)) {
      GiveBack(claimed);
    } else {
      Publish(wqe, claimed.wqe_index, IBV_WC_RECV, IBV_WC_LOC_LEN_ERR, 0);
    }
    return DeliveryStatus::kTooLong;
  }
  DeliveryStatus status = DeliveryStatus::kDelivered;
  if (header_bytes != 0) {
    const Grh grh = MakeGrh(source.operands->datagram, source.length_bytes);
    MessageSource header;
    header.inlined = std::as_bytes(std::span(grh));
    header.length_bytes = kGrhBytes;
    status = Scatter(header, sges, 0);
  }
  if (status == DeliveryStatus::kDelivered) status = Scatter(source, sges, header_bytes);
  // Last: a message that is retried must find the key unchanged.
  if (status == DeliveryStatus::kDelivered && wqe.opcode == IBV_WR_SEND_WITH_INV) {
    if (!InvalidateArriving(reach_.link->regions(), wqe.rkey, reach_.descriptor->pd,
                            reach_.descriptor->qp_num)) {
      status = DeliveryStatus::kDenied;
    }
    SOFTDC_KILL_POINT(kWindowTakenBack);
  }
  if (status == DeliveryStatus::kFailed) {
    Publish(wqe, claimed.wqe_index, IBV_WC_RECV, IBV_WC_LOC_PROT_ERR, 0);
  } else if (status != DeliveryStatus::kDelivered) {
    GiveBack(claimed);
  } else {
    Publish(wqe, claimed.wqe_index, IBV_WC_RECV, IBV_WC_SUCCESS, 0);
  }
  return status;
}

DeliveryStatus ReceiveDelivery::Scatter(const MessageSource& source, std::span<const shm::Sge> sges,
                                        uint64_t at) {
  uint64_t done = 0;
  for (shm::Sge sge : sges) {
    if (done == source.length_bytes) break;
    if (at >= sge.length) {
      at -= sge.length;
      continue;
    }
    sge.offset += at;
    sge.length -= static_cast<uint32_t>(at);
    at = 0;
    const uint64_t size_bytes = std::min<uint64_t>(sge.length, source.length_bytes - done);
    DeliveryStatus status =
        IsMkey(sge.key)
            ? ScatterThroughMkey(source, done, sge, size_bytes)
            : MoveRange(source, done, size_bytes, Direction::kToRemote,
                        [&](uint64_t into, uint64_t length) {
                          return reach_.link->Locate({.offset = sge.offset + into,
                                                      .key = sge.key,
                                                      .length = static_cast<uint32_t>(length)});
                        });
    // A receive WQE that names no memory of its owner is the owner's fault, not a missing right.
    if (status == DeliveryStatus::kDenied) status = DeliveryStatus::kFailed;
    if (status != DeliveryStatus::kDelivered) return status;
    done += size_bytes;
  }
  return DeliveryStatus::kDelivered;
}

bool ReceiveDelivery::GrantAnew(const Wqe& wqe) {
  written_key_ = kNoKey;
  reach_.written.at = nullptr;
  // An indirect key is not in this table, so JudgeRange rejects it.
  const shm::MemoryRegionEntry* region =
      JudgeRange(reach_.link->regions(), wqe.rkey, wqe.remote_address, wqe.length_bytes,
                 IBV_ACCESS_REMOTE_WRITE, *reach_.descriptor);
  if (region == nullptr || region->IsWindow()) return false;
  // Judged again after the snapshot was taken, so that the snapshot is what was judged.
  reach_.written.entry = shm::MemoryRegionSnapshot::Of(*region);
  if (JudgeRange(reach_.link->regions(), wqe.rkey, wqe.remote_address, wqe.length_bytes,
                 IBV_ACCESS_REMOTE_WRITE, *reach_.descriptor) == nullptr) {
    return false;
  }
  shm::MappedRegion mapped = reach_.link->Mapped(region->key.load(std::memory_order_relaxed));
  const uint64_t address = region->address;
  mapped.begin += address;
  mapped.end += address;
  mapped.address -= address;
  reach_.written.mapped = mapped;
  if (!reach_.written.entry.Is(*region)) return false;  // it has changed meanwhile
  reach_.written.at = region;
  written_key_ = wqe.rkey;
  return Covered(wqe);
}

void ReceiveDelivery::FindReceived(uint32_t key) {
  Target::Reach::Known& known = reach_.received;
  known.at = nullptr;
  known.mapped = reach_.link->Mapped(key);
  if (known.mapped.key == 0) return;
  const shm::MemoryRegionEntry& region = reach_.link->regions()[key >> 8];
  known.entry = shm::MemoryRegionSnapshot::Of(region);
  // Mapped again, so that the mapping follows from the snapshot.
  known.mapped = reach_.link->Mapped(key);
  if (known.entry.Is(region)) known.at = &region;
}

DeliveryStatus ReceiveDelivery::OneSided(const Wqe& wqe, const MessageSource& source) {
  // The key of a request of 0 bytes is not checked (IBA 9.7.5: zero-length requests skip the R_Key check).
  if (source.length_bytes == 0) return DeliveryStatus::kDelivered;
  if (IsMkey(wqe.rkey)) return OneSidedThroughMkey(wqe, source);
  const shm::MemoryRegionEntry* region = Judge(wqe, source);
  if (region == nullptr) return DeliveryStatus::kDenied;
  if (!region->IsWindow()) return OneSidedIn(*region, wqe, source);
  reach_.link->journal.BeginWindow(wqe.rkey);
  SOFTDC_KILL_POINT(kWindowBegun);
  // Judged again: from now on, a process that revokes the key waits for us.
  region = Judge(wqe, source);
  const DeliveryStatus status =
      region == nullptr ? DeliveryStatus::kDenied : OneSidedIn(*region, wqe, source);
  reach_.link->journal.EndWindow();
  return status;
}

const shm::MemoryRegionEntry* ReceiveDelivery::Judge(const Wqe& wqe,
                                                     const MessageSource& source) const {
  return JudgeRange(reach_.link->regions(), wqe.rkey, wqe.remote_address, source.length_bytes,
                    NeededAccess(wqe.opcode), *reach_.descriptor);
}

DeliveryStatus ReceiveDelivery::OneSidedIn(const shm::MemoryRegionEntry& region, const Wqe& wqe,
                                           const MessageSource& source) {
  const auto place_of = [&](uint64_t into, uint64_t length_bytes) {
    return reach_.link->Place(region, wqe.remote_address - region.address + into, length_bytes);
  };
  if (IsAtomic(wqe.opcode)) {
    const shm::RemotePlace place = place_of(0, source.length_bytes);
    const DeliveryStatus status = Locate(place);
    return status == DeliveryStatus::kDelivered ? RunAtomic(wqe, source, place) : status;
  }
  const bool read = wqe.opcode == IBV_WR_RDMA_READ;
  return MoveRange(source, 0, source.length_bytes,
                   read ? Direction::kFromRemote : Direction::kToRemote, place_of);
}

DeliveryStatus ReceiveDelivery::OneSidedThroughMkey(const Wqe& wqe, const MessageSource& source) {
  // An atomic needs one piece of memory.
  if (IsAtomic(wqe.opcode)) return DeliveryStatus::kDenied;
  const uint32_t access = NeededAccess(wqe.opcode);
  MkeyDelivery delivery(links_, *reach_.link, reach_.descriptor->pd, reach_.descriptor->cq_id);
  if (wqe.opcode != IBV_WR_RDMA_READ) {
    const std::vector<std::byte> wire = BytesOf(source, 0, source.length_bytes);
    return StatusOf(delivery.Write(wqe.rkey, wqe.remote_address, wire, access));
  }
  std::vector<std::byte> wire;
  const MkeyStatus status =
      delivery.Read(wqe.rkey, wqe.remote_address, source.length_bytes, access, &wire);
  if (status != MkeyStatus::kGood) return StatusOf(status);
  const std::byte* from = wire.data();
  for (const ibv_sge& sge : source.sges) {
    shm::CopyInOrder(reinterpret_cast<std::byte*>(sge.addr), from, sge.length);
    from += sge.length;
  }
  return DeliveryStatus::kDelivered;
}

DeliveryStatus ReceiveDelivery::ScatterThroughMkey(const MessageSource& source,
                                                   uint64_t source_offset, const shm::Sge& sge,
                                                   uint64_t length_bytes) {
  const std::vector<std::byte> wire = BytesOf(source, source_offset, length_bytes);
  return StatusOf(
      MkeyDelivery(links_, *reach_.link, reach_.descriptor->pd, reach_.descriptor->cq_id)
          .Write(sge.key, sge.offset, wire, IBV_ACCESS_LOCAL_WRITE));
}

DeliveryStatus ReceiveDelivery::RunAtomic(const Wqe& wqe, const MessageSource& source,
                                          const shm::RemotePlace& place) {
  const AtomicOperands& operands = source.operands->atomic;
  const shm::WordChange change{.compares = wqe.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? 1u : 0u,
                               .compare_add = operands.compare_add,
                               .swap = operands.swap};
  uint64_t before = 0;
  if (place.kind == shm::RemotePlace::Kind::kMapped) {
    before = change.ApplyTo(reinterpret_cast<uint64_t*>(place.address));
  } else {
    const shm::PrivateCopy changed = reach_.link->ChangePrivate(place, change, &before);
    if (changed != shm::PrivateCopy::kDone) return StatusOf(changed);
  }
  const auto bytes = std::as_bytes(std::span(&before, 1));
  uint64_t done = 0;
  for (const ibv_sge& sge : source.sges) {
    std::memcpy(reinterpret_cast<void*>(sge.addr), bytes.data() + done, sge.length);
    done += sge.length;
  }
  return DeliveryStatus::kDelivered;
}

}  // namespace sluice::softdc
