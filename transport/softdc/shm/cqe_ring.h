// SPDX-License-Identifier: Apache-2.0
//
// One SPSC ring of 64-byte CQEs per (Link, CQ), in the owner's arena: the Link's process produces,
// the owner consumes. A CQ is the set of its rings (and a private one for its own send
// completions), so a producer that dies leaves no hole in the way of others.
//
//   head | consumed | entry[capacity]
//
// The last 8 bytes of an entry are its stamp: position + 1, position being the entry's place in the
// ring's whole life. The producer stores the stamp last (release); the consumer takes an entry only
// when it carries the stamp it expects, so it never sees half of one. `consumed` is told to the
// producer once per quarter of the ring, and the producer looks at it only when its own copy says
// full: in the steady state nothing but the CQE's own line moves.
//
// Each end is used by one thread at a time (the Link's lock; the CQ's lock).
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_CQE_RING_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_CQE_RING_H_

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/softdc/shm/area.h"
#include "transport/softdc/shm/kill_point.h"

namespace sluice::softdc::shm {

inline constexpr uint32_t kMinCqeRingCapacity = 4;
inline constexpr uint32_t kMaxCqeRingCapacity = 1u << 22;

inline constexpr uint8_t kCqeSolicited =
    1;  // wakes an owner that armed for solicited completions only
inline constexpr uint8_t kCqeUnused = 2;  // no completion: the WQE comes back; SrqOwner::Repost it
// imm_data is the key of a window that the producer took back: not for the program before the copies
// through that window have ended.
inline constexpr uint8_t kCqeInvalidates = 4;

// What one completion says: the receive WQE in place of a wr_id, then the fields of ibv_wc, where
// ibv_wc has them, so that the owner hands them on word by word. It checks every index before use.
struct Cqe {
  uint32_t wqe_index = 0;
  uint32_t srq_id = 0;
  uint32_t status = 0;  // ibv_wc_status
  uint32_t opcode = 0;  // ibv_wc_opcode
  uint32_t vendor_err = 0;
  uint32_t byte_len = 0;
  uint32_t imm_data = 0;  // big-endian, as on the wire; or the invalidated rkey
  uint32_t qp_num = 0;
  uint32_t src_qp = 0;
  uint32_t wc_flags = 0;  // IBV_WC_*
  uint16_t pkey_index = 0;
  uint16_t slid = 0;
  uint8_t sl = 0;
  uint8_t dlid_path_bits = 0;
  uint8_t flags = 0;  // kCqe…; ibv_wc has nothing there
  uint8_t reserved = 0;
  int64_t timestamp_ns = 0;  // CLOCK_MONOTONIC, if the ring asks for it (CqeProducer::stamped)
};
static_assert(sizeof(Cqe) == 56);

namespace internal {

inline constexpr uint32_t kCqeRingMagic = 0x51514332;
inline constexpr size_t kCqeWords = sizeof(Cqe) / sizeof(uint64_t);
inline constexpr size_t kTimestampWord = offsetof(Cqe, timestamp_ns) / sizeof(uint64_t);

struct CqeEntry {
  std::atomic<uint64_t> words[kCqeWords];
  std::atomic<uint64_t> stamp;

  uint64_t Word(size_t i) const { return words[i].load(std::memory_order_relaxed); }
};
static_assert(sizeof(CqeEntry) == 64);

// Put together in registers: through memory, the narrow stores would not be forwarded to the wide loads.
static_assert(std::endian::native == std::endian::little);
inline std::array<uint64_t, kCqeWords> WordsOf(const Cqe& cqe) {
  const auto pair = [](uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; };
  return {pair(cqe.wqe_index, cqe.srq_id),
          pair(cqe.status, cqe.opcode),
          pair(cqe.vendor_err, cqe.byte_len),
          pair(cqe.imm_data, cqe.qp_num),
          pair(cqe.src_qp, cqe.wc_flags),
          uint64_t{cqe.pkey_index} | uint64_t{cqe.slid} << 16 | uint64_t{cqe.sl} << 32 |
              uint64_t{cqe.dlid_path_bits} << 40 | uint64_t{cqe.flags} << 48 |
              uint64_t{cqe.reserved} << 56,
          static_cast<uint64_t>(cqe.timestamp_ns)};
}

struct CqeRingHead {
  std::atomic<uint32_t> magic;
  uint32_t capacity;
  uint32_t stamped;              // 1: the owner's CQ reports when completions happened
  std::atomic<uint32_t> narrow;  // 1: see CqeProducer::narrow
  alignas(kLineBytes) std::atomic<uint64_t> consumed;
  alignas(kLineBytes) CqeEntry entries[];
};
static_assert(sizeof(CqeRingHead) == 2 * kLineBytes);

constexpr bool ValidCqeRingCapacity(uint32_t capacity) {
  return IsPowerOfTwo(capacity) && capacity >= kMinCqeRingCapacity &&
         capacity <= kMaxCqeRingCapacity;
}

}  // namespace internal

class CqeConsumer {
 public:
  static constexpr size_t Bytes(uint32_t capacity) {
    return RoundUpToLine(sizeof(internal::CqeRingHead) +
                         size_t{capacity} * sizeof(internal::CqeEntry));
  }

  // Makes an empty ring there, for one producer in its life. The memory reads as zeros, as an Arena gives
  // it: entries stay untouched, so a ring takes pages as it is used. nullopt: capacity is no power of two
  // in [kMinCqeRingCapacity, kMaxCqeRingCapacity], or the memory is too small or not aligned.
  // stamped: producers are to fill in Cqe::timestamp_ns. narrow: see CqeProducer::narrow.
  static std::optional<CqeConsumer> Create(void* base, size_t size_bytes, uint32_t capacity,
                                           bool stamped = false, bool narrow = false) {
    if (base == nullptr || !IsLineAligned(base)) return std::nullopt;
    if (!internal::ValidCqeRingCapacity(capacity) || size_bytes < Bytes(capacity)) {
      return std::nullopt;
    }
    auto* area = static_cast<internal::CqeRingHead*>(base);
    area->magic.store(0, std::memory_order_relaxed);
    area->capacity = capacity;
    area->stamped = stamped ? 1 : 0;
    area->narrow.store(narrow ? 1 : 0, std::memory_order_relaxed);
    area->consumed.store(0, std::memory_order_relaxed);
    area->magic.store(internal::kCqeRingMagic, std::memory_order_release);
    return CqeConsumer(area, capacity);
  }

  // Takes the next CQE. False: none.
  bool Poll(Cqe* cqe) {
    if (!Read(position_, cqe)) return false;
    Take();
    return true;
  }
  // The same in two steps, without a copy: the next CQE word by word, each to be read once, since a
  // broken producer may change it under us; null: none. Take() ends its life.
  const internal::CqeEntry* Peek() const {
    const internal::CqeEntry& entry = Entry(position_);
    return entry.stamp.load(std::memory_order_acquire) == position_ + 1 ? &entry : nullptr;
  }
  void Take() {
    ++position_;
    SOFTDC_KILL_POINT(kCqeConsumed);
    if ((position_ & (tell_every_ - 1)) == 0) {
      area_->consumed.store(position_, std::memory_order_release);
    }
  }

  bool Empty() const { return Peek() == nullptr; }

  // Calls visit(const Cqe&) for each CQE that Poll would return now, and takes none.
  template <typename Visitor>
  void ForEachUnread(Visitor visit) const {
    Cqe cqe;
    for (uint32_t i = 0; i < capacity_ && Read(position_ + i, &cqe); ++i) visit(cqe);
  }

  // Takes out each CQE that drop(const Cqe&) is true for, the newest first. The others close up towards
  // the producer's end, so they stay where ForEachUnread finds them: what is taken out of the ring and kept
  // elsewhere looks to Repair as if its WQE had never been published. The producer is told of the room
  // last, since it writes there.
  template <typename Predicate>
  void DropUnread(Predicate drop) {
    uint64_t end = position_;
    while (end - position_ < capacity_ && Stamped(end)) ++end;
    uint64_t kept = end;
    Cqe cqe;
    for (uint64_t i = end; i-- != position_;) {
      if (!Read(i, &cqe) || drop(cqe)) continue;
      if (--kept == i) continue;
      // The entry there has its stamp.
      for (size_t word = 0; word < internal::kCqeWords; ++word) {
        Entry(kept).words[word].store(Entry(i).Word(word), std::memory_order_relaxed);
      }
    }
    if (kept == position_) return;
    position_ = kept;
    area_->consumed.store(position_, std::memory_order_release);
  }

  // The CQ has become larger than the ring is for.
  void SetNarrow() { area_->narrow.store(1, std::memory_order_release); }

  uint32_t capacity() const { return capacity_; }
  uint64_t position() const { return position_; }  // CQEs taken so far

 private:
  CqeConsumer(internal::CqeRingHead* area, uint32_t capacity)
      : area_(area), capacity_(capacity), tell_every_(capacity / 4) {}

  internal::CqeEntry& Entry(uint64_t position) const {
    return area_->entries[position & (capacity_ - 1)];
  }
  bool Stamped(uint64_t position) const {
    return Entry(position).stamp.load(std::memory_order_acquire) == position + 1;
  }
  bool Read(uint64_t position, Cqe* cqe) const {
    if (!Stamped(position)) return false;
    std::array<uint64_t, internal::kCqeWords> words;
    for (size_t i = 0; i < words.size(); ++i) {
      words[i] = Entry(position).Word(i);
    }
    *cqe = std::bit_cast<Cqe>(words);
    return true;
  }

  internal::CqeRingHead* area_;
  uint32_t capacity_;
  uint32_t tell_every_;
  uint64_t position_ = 0;
};

class CqeProducer {
 public:
  // nullopt: not a ring made by CqeConsumer::Create, or one that does not fit into size_bytes.
  static std::optional<CqeProducer> Attach(void* base, size_t size_bytes) {
    if (base == nullptr || !IsLineAligned(base) || size_bytes < sizeof(internal::CqeRingHead)) {
      return std::nullopt;
    }
    auto* area = static_cast<internal::CqeRingHead*>(base);
    if (area->magic.load(std::memory_order_acquire) != internal::kCqeRingMagic) return std::nullopt;
    CqeProducer producer(area);
    if (!internal::ValidCqeRingCapacity(producer.capacity_) ||
        size_bytes < CqeConsumer::Bytes(producer.capacity_)) {
      return std::nullopt;
    }
    return producer;
  }

  // Whether count CQEs fit now. Never true for count > max_batch(). Ask before claiming WQEs, so
  // that each claimed one can be published. False ends when the owner polls.
  bool CanPublish(uint32_t count) {
    if (count > max_batch()) return false;
    if (Free() >= count) return true;
    consumed_seen_ = area_->consumed.load(std::memory_order_acquire);
    return Free() >= count;
  }

  // CanPublish must have said so.
  [[gnu::always_inline]] void Publish(const Cqe& cqe) {
    internal::CqeEntry& entry = area_->entries[position_ & (capacity_ - 1)];
    const std::array<uint64_t, internal::kCqeWords> words = internal::WordsOf(cqe);
    entry.words[0].store(words[0], std::memory_order_relaxed);
    SOFTDC_KILL_POINT(kCqeHalfWritten);
    entry.words[1].store(words[1], std::memory_order_relaxed);
    entry.words[2].store(words[2], std::memory_order_relaxed);
    entry.words[3].store(words[3], std::memory_order_relaxed);
    entry.words[4].store(words[4], std::memory_order_relaxed);
    entry.words[5].store(words[5], std::memory_order_relaxed);
    entry.words[6].store(words[6], std::memory_order_relaxed);
    static_assert(internal::kCqeWords == 7);
    SOFTDC_KILL_POINT(kCqeUnstamped);
    entry.stamp.store(++position_, std::memory_order_release);
    SOFTDC_KILL_POINT(kCqePublished);
  }

  // The owner may be a quarter of the ring ahead of what it told us, so no more than this is ever
  // asked for.
  uint32_t max_batch() const { return capacity_ - capacity_ / 4; }
  uint32_t capacity() const { return capacity_; }
  bool stamped() const { return stamped_; }
  // The ring is smaller than the CQ needs: a full one does not mean that the CQ is full, so a producer waits.
  bool narrow() const { return area_->narrow.load(std::memory_order_acquire) != 0; }

 private:
  explicit CqeProducer(internal::CqeRingHead* area)
      : area_(area), capacity_(area->capacity), stamped_(area->stamped != 0) {}

  // 0 when a broken owner claims to have consumed more than there is.
  uint32_t Free() const {
    const uint64_t used = position_ - consumed_seen_;
    return used <= capacity_ ? capacity_ - static_cast<uint32_t>(used) : 0;
  }

  internal::CqeRingHead* area_;
  uint32_t capacity_;
  bool stamped_;
  uint64_t position_ = 0;
  uint64_t consumed_seen_ = 0;
};

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_CQE_RING_H_
