// SPDX-License-Identifier: Apache-2.0
//
// What every area in shared memory here has in common: spacing, a checked head, and the one full
// fence.
//
// An area is placed in memory that the caller gives (address and size, 128-byte aligned), holds no
// pointers and may be mapped at a different address in each process. Its creator writes the head
// last; a process that attaches checks the head against the size it was given and copies what it needs:
// later changes by a broken peer to the head change nothing for those attached.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_AREA_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_AREA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sluice::softdc::shm {

// Words written by different processes are this far apart: the adjacent-line prefetcher pairs
// 64-byte lines.
inline constexpr size_t kLineBytes = 128;

static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8,
              "words shared between processes must be plain lock-free words");

constexpr bool IsPowerOfTwo(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

constexpr size_t RoundUpToLine(size_t size_bytes) {
  return (size_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

inline bool IsLineAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % kLineBytes == 0;
}

// Orders everything before it before everything after it, store to load included. It is one half of
// the pairs "publish, fence, look at `armed`" and "arm, fence, look for a completion": without it
// both can miss the other. (ThreadSanitizer does not model fences; no happens-before edge here
// depends on this one.)
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
inline void FullFence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_AREA_H_
