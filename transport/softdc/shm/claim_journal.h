// SPDX-License-Identifier: Apache-2.0
//
// ClaimJournal: one line per Link in the arena of the owner. In it, the process of the Link records which SRQ
// tickets it is about to take, and whether it is copying. The owner reads the first word for one purpose:
// after a process died, to distinguish a WQE that a living process holds from a WQE that no process holds
// (repair.h).
//
// The first word is stored in one step, so no reader sees half of it:
//   bits 63..44 srq_id   43..32 count (0: no claim)   31..0 head (low bits)
// Each Link has at most one open claim. The process writes the next claim only after it has published each
// WQE of the last claim, as a completion or as kCqeUnused. It clears the word at the end of the doorbell. The
// lock of the Link serializes writers.
//
// The second word is a counter. It is odd from before the process looks at keys of the owner's regions until
// after its last copy. An owner that revokes a key runs a barrier on all cores (MakeCopiersSee), then waits
// until each odd word has changed. A process that looks at the key later finds the key invalid. The sender
// pays for two plain stores to its own line. It pays for a fence only if the kernel has no such barrier.
//
// The third word is the rkey of the memory window that the process uses, or 0. The process writes the word
// before it checks the key for the last time, and clears it after its copy. An owner that revokes the key of
// a window checks this word only, so an invalidation does not wait for unrelated copies. The sender writes
// the word only if the key belongs to a window.
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
inline constexpr uint32_t kMaxSrqId = (1u << 20) - 1;  // highest index in the SRQ table of an owner

// A decoded journal word. Tickets are compared by their low 32 bits. A word that is older than 2^32 tickets
// may cover a ticket that it does not name. This only defers a repair and never makes a repair wrong.
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

  // Owner: creates an empty journal. Call it before the process of the Link learns of the line.
  static std::optional<ClaimJournal> Create(void* base, size_t size_bytes) {
    if (!Fits(base, size_bytes)) return std::nullopt;
    return ClaimJournal(new (base) Words{});
  }

  // Owner or sender. Returns nullopt if the memory is too small or not aligned. Any content is a valid word.
  static std::optional<ClaimJournal> Attach(void* base, size_t size_bytes) {
    if (!Fits(base, size_bytes)) return std::nullopt;
    return ClaimJournal(static_cast<Words*>(base));
  }

  // Link's process: stores the claim with release order. A process that reads this word also sees each CQE
  // that was published before it.
  void Write(uint32_t srq_id, uint64_t head, uint32_t count) {
    word_->store(uint64_t{srq_id} << 44 | uint64_t{count} << 32 | static_cast<uint32_t>(head),
                 std::memory_order_release);
  }
  void Clear() { word_->store(0, std::memory_order_release); }

  // Link's process: call BeginCopies before the first look at a key, and EndCopies after the last copy.
  void BeginCopies() {
    copies_->store(copies_->load(std::memory_order_relaxed) | 1, std::memory_order_relaxed);
    OrderCopier();
  }
  void EndCopies() {
    copies_->store(copies_->load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  // Link's process, between BeginCopies and EndCopies: call these around the check of a window's key and the
  // copy through that window.
  void BeginWindow(uint32_t rkey) {
    window_->store(rkey, std::memory_order_relaxed);
    FullFence();
  }
  void EndWindow() { window_->store(0, std::memory_order_release); }

  // Owner: returns an odd number while a copy may be in progress.
  uint64_t copies() const { return copies_->load(std::memory_order_acquire); }
  // Owner, after a full fence: returns the rkey of the window that may be in use, or 0.
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
