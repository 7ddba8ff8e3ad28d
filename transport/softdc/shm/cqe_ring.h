// SPDX-License-Identifier: Apache-2.0
//
// One SPSC ring of 64-byte CQEs per (Link, CQ), in the arena of the owner. The process of the Link produces,
// the owner consumes. A CQ consists of its rings and of a private ring for its own send completions. If a
// producer dies, the other rings have no hole.
//
//   head | consumed | entry[capacity]
//
// The last 8 bytes of an entry are its stamp: position + 1. The position counts entries over the whole life
// of the ring. The producer stores the stamp last (release). The consumer takes an entry only if it has the
// expected stamp, so it never sees half of an entry. The consumer updates `consumed` once per quarter of the
// ring. The producer reads `consumed` only if its own copy says that the ring is full. In the steady state,
// only the cache line of the CQE moves between cores.
//
// Threads       One thread at a time at each end: the lock of the Link covers the producer, the lock of the
//               CQ the consumer.
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
// Not a completion: the WQE is unused; pass it to SrqOwner::Repost.
inline constexpr uint8_t kCqeUnused = 2;
// imm_data is the key of a window that the producer invalidated. The owner must not give the completion to
// the program before the copies through that window have ended.
inline constexpr uint8_t kCqeInvalidates = 4;

// The contents of a completion: the receive WQE instead of a wr_id, then the fields of ibv_wc at the offsets
// of ibv_wc. The owner can therefore pass them on word by word. The owner checks every index before use.
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

// Builds the words in registers. In memory, the CPU would not forward the narrow stores to the wide loads.
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

  // Creates an empty ring for a single producer. The memory must read as zeros, as an Arena provides it.
  // Entries are not written, so the kernel allocates pages only as the ring is used. Returns nullopt if
  // capacity is no power of two in [kMinCqeRingCapacity, kMaxCqeRingCapacity], or the memory is too small or
  // not aligned. stamped: producers must set Cqe::timestamp_ns. narrow: see CqeProducer::narrow.
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

  // Takes the next CQE. Returns false if there is none.
  bool Poll(Cqe* cqe) {
    if (!Read(position_, cqe)) return false;
    Take();
    return true;
  }
  // Does the same in two steps, without a copy. Peek returns the next CQE, or null if there is none. Read
  // each word once, since a broken producer may change it at any time. The entry is valid until Take().
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

  // Removes each CQE for which drop(const Cqe&) returns true. Calls drop for the newest CQE first. The
  // remaining CQEs move towards the producer's end, where ForEachUnread still finds them. If they were kept
  // outside the ring, Repair would treat their WQEs as never published. `consumed` is updated last, since the
  // producer then writes into the freed entries.
  template <typename Predicate>
  void DropUnread(Predicate drop) {
    uint64_t end = position_;
    while (end - position_ < capacity_ && Stamped(end)) ++end;
    uint64_t kept = end;
    Cqe cqe;
    for (uint64_t i = end; i-- != position_;) {
      if (!Read(i, &cqe) || drop(cqe)) continue;
      if (--kept == i) continue;
      // The target entry already has its stamp.
      for (size_t word = 0; word < internal::kCqeWords; ++word) {
        Entry(kept).words[word].store(Entry(i).Word(word), std::memory_order_relaxed);
      }
    }
    if (kept == position_) return;
    position_ = kept;
    area_->consumed.store(position_, std::memory_order_release);
  }

  // Marks the ring as narrow: the CQ has become larger than the ring.
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
  // Returns nullopt if the memory is not a ring of CqeConsumer::Create, or the ring does not fit into
  // size_bytes.
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

  // Returns whether count CQEs fit now. Always false if count > max_batch(). Call it before you claim WQEs,
  // so that each claimed WQE can be published. A ring that is full gets room when the owner polls.
  bool CanPublish(uint32_t count) {
    if (count > max_batch()) return false;
    if (Free() >= count) return true;
    consumed_seen_ = area_->consumed.load(std::memory_order_acquire);
    return Free() >= count;
  }

  // Requires that CanPublish returned true.
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

  // The owner may have consumed up to a quarter of the ring more than `consumed` shows. A larger batch might
  // therefore never fit.
  uint32_t max_batch() const { return capacity_ - capacity_ / 4; }
  uint32_t capacity() const { return capacity_; }
  bool stamped() const { return stamped_; }
  // Returns whether the ring is smaller than its CQ. If such a ring is full, the CQ may still have room, so
  // the producer waits.
  bool narrow() const { return area_->narrow.load(std::memory_order_acquire) != 0; }

 private:
  explicit CqeProducer(internal::CqeRingHead* area)
      : area_(area), capacity_(area->capacity), stamped_(area->stamped != 0) {}

  // Returns 0 if a broken owner claims to have consumed more than was published.
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
