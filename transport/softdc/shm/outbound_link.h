// SPDX-License-Identifier: Apache-2.0
//
// OutboundLink: what this context has mapped of another context to which it sends: the arena and the shared
// segments of that context, and our own journal line and CQE rings in that arena. Target: one QP number of
// that context.
//
// The Loop thread creates, extends and ends links. Posters use them under `lock`. If the peer of a link dies,
// the link is marked dead. It is destroyed, with everything mapped for it, when no pass uses it
// (outbound_links.h, Dropped).
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_OUTBOUND_LINK_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_OUTBOUND_LINK_H_

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "transport/softdc/loop/unique_fd.h"
#include "transport/softdc/shm/armed_word.h"
#include "transport/softdc/shm/bounce.h"
#include "transport/softdc/shm/claim_journal.h"
#include "transport/softdc/shm/control.h"
#include "transport/softdc/shm/cqe_ring.h"
#include "transport/softdc/shm/layout.h"
#include "transport/softdc/shm/spin_lock.h"
#include "transport/softdc/shm/srq_claimer.h"
#include "transport/softdc/shm/word_change.h"

namespace sluice::softdc::shm {

inline constexpr uint32_t kMaxPeerSegments = 4096;
inline constexpr uint32_t kClaimBatchMax =
    32;  // receive WQEs per claim; doorbells are rarely longer

// A mapped file of the peer.
class MappedFile {
 public:
  MappedFile(std::byte* base, uint64_t size_bytes) : base_(base), size_bytes_(size_bytes) {}
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Returns null if the file cannot be mapped or is not sealed against shrinking.
  static std::unique_ptr<MappedFile> Map(int fd, uint64_t size_bytes);

  // Returns null if the range is not inside the file.
  std::byte* At(uint64_t offset, uint64_t length_bytes) const {
    if (offset > size_bytes_ || length_bytes > size_bytes_ - offset) return nullptr;
    return base_ + offset;
  }

 private:
  std::byte* const base_;
  const uint64_t size_bytes_;
};

// Location of a range of the peer's memory, as seen from this process. Covers only the first contiguous
// piece: a region whose middle was moved onto a segment has up to three pieces.
struct RemotePlace {
  enum class Kind {
    kMapped,     // at `address` in this process
    kPrivate,    // at `peer_address`, in the peer's address space
    kNotMapped,  // in `segment`, which must be requested first
    kDenied,     // no such region, out of range, or the right is missing
  };
  Kind kind = Kind::kDenied;
  std::byte* address = nullptr;
  uint64_t peer_address = 0;
  uint64_t length_bytes = 0;  // of the requested range, from its start; kMapped and kPrivate
  uint32_t segment = 0;
  uint32_t key = 0;      // of the region; kPrivate
  bool relaxed = false;  // the region was registered with relaxed ordering
};

// The mapped part of a region of the peer. A poster looks a key up once for all messages of a doorbell. Valid
// until the copies end (ClaimJournal::EndCopies). Until then, a revoked key may still be used.
struct MappedRegion {
  uint32_t key = 0;       // 0: none
  bool relaxed = false;   // as in RemotePlace
  uint64_t begin = 0;     // offsets in the region
  uint64_t end = 0;       //
  uintptr_t address = 0;  // address of offset 0 in this process

  // Returns null if the piece belongs to another region or is not completely inside the mapped part.
  std::byte* At(const Sge& sge) const {
    if (sge.key != key || sge.offset < begin || sge.offset > end || sge.length > end - sge.offset ||
        key == 0) {
      return nullptr;
    }
    return reinterpret_cast<std::byte*>(address + sge.offset);
  }
};

// Result of a copy from or to private memory of a peer.
enum class PrivateCopy {
  kDone,
  kAgain,    // the peer has not accepted our bounce client yet, or does not answer
  kRefused,  // the peer has no such memory
  kMaybe,    // atomic operations only: the peer does not answer and may still do it; never retry
  kNobody,   // the peer is gone
};

// Our completion ring in a CQ of the peer, and the means to wake a thread that sleeps on that CQ.
struct RemoteCq {
  uint64_t ring_offset = 0;  // in the peer's arena
  CqeProducer ring;
  ArmedWord armed;
  UniqueFd event_fd;  // empty: the CQ has no completion channel
};

class OutboundLink {
 public:
  // bell: wakes the firmware of the peer.
  OutboundLink(UniqueFd socket, pid_t pid, uint64_t context_id, uint32_t link_id,
               std::unique_ptr<MappedFile> arena, ClaimJournal journal, UniqueFd bell,
               bool process_vm);

  // Returns the region table of the peer, for the check of keys (model/arrival.h).
  std::span<MemoryRegionEntry> regions() const { return {regions_, region_count_}; }
  // Returns the first piece of a range that is inside a region of that table. `into` is the offset in the
  // region.
  RemotePlace Place(const MemoryRegionEntry& region, uint64_t into, uint64_t length_bytes) const {
    return PlaceIn(region, into, length_bytes);
  }
  // Does the same for a piece of a receive buffer.
  RemotePlace Locate(const Sge& sge) const {
    const uint32_t index = sge.key >> 8;
    if (sge.key == 0 || index >= region_count_) return {};
    const MemoryRegionEntry& region = regions_[index];
    if (region.key.load(std::memory_order_acquire) != sge.key || sge.offset > region.length_bytes ||
        sge.length > region.length_bytes - sge.offset) {
      return {};
    }
    return PlaceIn(region, sge.offset, sge.length);
  }

  // Returns the mapped part of the region that a key names, or an empty result if no part is mapped.
  MappedRegion Mapped(uint32_t key) const {
    const uint32_t index = key >> 8;
    if (key == 0 || index >= region_count_) return {};
    const MemoryRegionEntry& region = regions_[index];
    if (region.key.load(std::memory_order_acquire) != key) return {};
    return Mapped(region, key);
  }
  // Does the same for a region of that table. The region must have that key.
  MappedRegion Mapped(const MemoryRegionEntry& region, uint32_t key) const {
    const MappedFile* file = Find(region.segment);
    // Each field is read once: a broken owner may change it at any time.
    const uint64_t begin = region.shared_begin;
    const uint64_t end = std::min(region.shared_end, region.length_bytes);
    if (file == nullptr || begin >= end) return {};
    const std::byte* first = file->At(region.segment_offset, end - begin);
    if (first == nullptr) return {};
    return {.key = key,
            .relaxed = (region.access & IBV_ACCESS_RELAXED_ORDERING) != 0,
            .begin = begin,
            .end = end,
            .address = reinterpret_cast<uintptr_t>(first) - begin};
  }

  // Returns whether private memory of the peer can be reached. Returns false while the peer has not accepted
  // our bounce client. Never blocks. Call under lock.
  bool ReadyForPrivate() { return bounce_ == nullptr || bounce_->Ready(); }
  // Copies between our memory and bytes of a kPrivate place. `into` is the offset in the place. Call under
  // lock.
  PrivateCopy WritePrivate(const RemotePlace& place, uint64_t into, const std::byte* from,
                           uint64_t length_bytes);
  PrivateCopy ReadPrivate(const RemotePlace& place, uint64_t into, std::byte* to,
                          uint64_t length_bytes);
  // Runs an atomic operation on the word of a kPrivate place. *before: old value of the word. Call under
  // lock.
  PrivateCopy ChangePrivate(const RemotePlace& place, const WordChange& change, uint64_t* before);

  // Makes the firmware of the peer check its CQs and SRQs, because a CQ was overrun or an SRQ reached its
  // limit.
  void RingFirmware() const;

  const MappedFile& arena() const { return *arena_; }
  bool dead() const { return dead_.load(std::memory_order_acquire); }
  uint64_t context_id() const { return context_id_; }
  uint32_t link_id() const { return link_id_; }

  // Loop thread only.
  int socket() const { return socket_.get(); }
  void MarkDead();
  void AddSegment(uint32_t segment, std::unique_ptr<MappedFile> file);
  bool HasSegment(uint32_t segment) const { return Find(segment) != nullptr; }
  // Returns the ring into that CQ, and creates it for the first target that completes there. Returns null if
  // the answer is invalid. CQ ids are reused: the ring into an earlier CQ of the same id moves to *replaced.
  RemoteCq* AddRemoteCq(const ControlMessage& answer, uint64_t armed_offset, UniqueFd event_fd,
                        std::unique_ptr<RemoteCq>* replaced);

  // Moves rings that no target uses to *dropped.
  void DropRemoteCqs(const std::unordered_set<const RemoteCq*>& used,
                     std::vector<std::unique_ptr<RemoteCq>>* dropped);

  SpinLock lock;         // taken by posters; covers a claim and the publishing of its WQEs
  ClaimJournal journal;  // under lock
  std::array<ClaimedWqe, kClaimBatchMax>
      claimed;  // under lock: buffer for a claim, not initialized for each claim

 private:
  const MappedFile* Find(uint32_t segment) const {
    return segment < kMaxPeerSegments ? segments_[segment].load(std::memory_order_acquire)
                                      : nullptr;
  }
  // Returns the first piece of [into, into + length_bytes) of a region.
  RemotePlace PlaceIn(const MemoryRegionEntry& region, uint64_t into, uint64_t length_bytes) const {
    using Kind = RemotePlace::Kind;
    const uint64_t shared_begin = region.shared_begin, shared_end = region.shared_end;
    if (into < shared_begin || into >= shared_end) {
      if (into < shared_begin) length_bytes = std::min(length_bytes, shared_begin - into);
      return {.kind = Kind::kPrivate,
              .peer_address = region.address + into,
              .length_bytes = length_bytes,
              .key = region.key.load(std::memory_order_relaxed)};
    }
    length_bytes = std::min(length_bytes, shared_end - into);
    const uint32_t segment = region.segment;
    const MappedFile* file = Find(segment);
    if (file == nullptr) {
      return {.kind = segment < kMaxPeerSegments ? Kind::kNotMapped : Kind::kDenied,
              .segment = segment};
    }
    std::byte* address = file->At(region.segment_offset + (into - shared_begin), length_bytes);
    if (address == nullptr) return {};
    return {.kind = Kind::kMapped,
            .address = address,
            .length_bytes = length_bytes,
            .segment = segment,
            .relaxed = (region.access & IBV_ACCESS_RELAXED_ORDERING) != 0};
  }

  template <typename Copy>
  int Bounce(Copy copy);
  // Returns whether pid_ still names the peer, for copies by the kernel. The kernel closes the sockets of a
  // process before another process can get its id.
  bool PidIsPeers() const;

  UniqueFd socket_;
  const UniqueFd bell_;
  const pid_t pid_;
  const uint64_t context_id_;
  const uint32_t link_id_;
  const std::unique_ptr<MappedFile> arena_;
  MemoryRegionEntry* regions_ = nullptr;
  uint32_t region_count_ = 0;
  std::atomic<bool> dead_{false};
  const bool bounces_;                    // private memory is reached through its owner
  std::unique_ptr<BounceClient> bounce_;  // under lock
  std::array<std::atomic<const MappedFile*>, kMaxPeerSegments> segments_{};
  std::vector<std::unique_ptr<MappedFile>> files_;                      // Loop thread
  std::unordered_map<uint32_t, std::unique_ptr<RemoteCq>> remote_cqs_;  // by CQ id; Loop thread
};

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_OUTBOUND_LINK_H_
