// SPDX-License-Identifier: Apache-2.0
//
// ClaimJournal: one line per Link in the owner's arena, in which the Link's process says which SRQ
// tickets it is about to take, and whether it is at a copy. The owner reads the first for one purpose: after some process died, to tell
// a WQE that a living process holds from one that no process holds (repair.h).
//
// One word, stored whole, so it is never seen torn:
//   bits 63..44 srq_id   43..32 count (0: no claim)   31..0 head (low bits)
// One claim is open per Link at a time: the next is written only after each WQE of the last one was
// published, as a completion or as kCqeUnused, and the word is cleared at the end of the doorbell. Writers
// are serialised by the Link's lock.
//
// The second word counts: odd from before the process looks at keys of the owner's regions until after
// its last copy. An owner that takes a key back makes every core see that (MakeCopiersSee), then
// waits for each odd word to change: a process that looks at the key later finds it gone. The sender pays
// two plain stores to its own line, and a fence only where the kernel gives the owner no such means.
//
// The third word is the rkey of the memory window that the process is at, or 0: written before it looks at
// that key for the last time, and taken away after its copy. An owner that takes a window's key back asks
// for this word alone, so an invalidation does not wait for copies that have nothing to do with it. The
// sender pays for it only when the key is a window's.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_CLAIM_JOURNAL_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_CLAIM_JOURNAL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>

#include "transport/softdc/shm/area.h"
#include "transport/softdc/shm/copier_order.h"

namespace sluice::softdc::shm {

inline constexpr uint32_t kMaxClaim = (1u << 12) - 1;  // WQEs in one claim
inline constexpr uint32_t kMaxSrqId =
    (1u << 20) - 1;  // an owner's SRQ table has at most this last index

// A decoded journal word. Tickets are compared by their low 32 bits. A word that has stood for more
// than 2^32 tickets may cover a ticket it does not mean; that only defers a repair, it never makes
// one wrong.
struct ClaimIntent {
  uint32_t srq_id = 0;
  uint32_t head = 0;
  uint32_t count = 0;

  bool Covers(uint32_t srq, uint64_t ticket) const {
    return count != 0 && srq == srq_id && static_cast<uint32_t>(ticket) - head < count;
  }
};

class ClaimJournal {
 public:
  static constexpr size_t Bytes() { return kLineBytes; }

  // Owner, before the Link's process is told of the line: makes it empty.
  static std::optional<ClaimJournal> Create(void* base, size_t size_bytes) {
    if (!Fits(base, size_bytes)) return std::nullopt;
    return ClaimJournal(new (base) Words{});
  }

  // Either side. nullopt: the memory is too small or not aligned. Any content is a valid word.
  static std::optional<ClaimJournal> Attach(void* base, size_t size_bytes) {
    if (!Fits(base, size_bytes)) return std::nullopt;
    return ClaimJournal(static_cast<Words*>(base));
  }

  // Link's process. Release: whoever reads this word also sees each CQE published before it.
  void Write(uint32_t srq_id, uint64_t head, uint32_t count) {
    word_->store(uint64_t{srq_id} << 44 | uint64_t{count} << 32 | static_cast<uint32_t>(head),
                 std::memory_order_release);
  }
  void Clear() { word_->store(0, std::memory_order_release); }

  // Link's process, around everything that looks at a key and copies.
  void BeginCopies() {
    copies_->store(copies_->load(std::memory_order_relaxed) | 1, std::memory_order_relaxed);
    OrderCopier();
  }
  void EndCopies() {
    copies_->store(copies_->load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  // Link's process, between the two, around looking at the key of a window and copying through it.
  void BeginWindow(uint32_t rkey) {
    window_->store(rkey, std::memory_order_relaxed);
    FullFence();
  }
  void EndWindow() { window_->store(0, std::memory_order_release); }

  // Owner: odd while a copy may be under way.
  uint64_t copies() const { return copies_->load(std::memory_order_acquire); }
  // Owner, after a full fence: the window that may be in use; 0: none.
  uint32_t window() const { return window_->load(std::memory_order_acquire); }

  // Owner.
  ClaimIntent Read() const {
    const uint64_t word = word_->load(std::memory_order_acquire);
    return {.srq_id = static_cast<uint32_t>(word >> 44),
            .head = static_cast<uint32_t>(word),
            .count = static_cast<uint32_t>(word >> 32) & kMaxClaim};
  }

 private:
  struct Words {
    std::atomic<uint64_t> claim;
    std::atomic<uint64_t> copies;
    std::atomic<uint32_t> window;
  };

  explicit ClaimJournal(Words* words)
      : word_(&words->claim), copies_(&words->copies), window_(&words->window) {}
  static bool Fits(const void* base, size_t size_bytes) {
    return base != nullptr && size_bytes >= Bytes() && IsLineAligned(base);
  }

  std::atomic<uint64_t>* word_;
  std::atomic<uint64_t>* copies_;
  std::atomic<uint32_t>* window_;
};

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_CLAIM_JOURNAL_H_
