// SPDX-License-Identifier: Apache-2.0
//
// Rules that all areas in shared memory have in common: spacing, a checked head, and the one full fence.
//
// An area is placed in memory that the caller provides (address and size, aligned to 128 bytes). It holds no
// pointers and may be mapped at a different address in each process. The creator writes the head last. A
// process that attaches checks the head against the size it was given, and copies the fields that it needs.
// If a broken peer changes the head later, attached processes are not affected.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_AREA_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_AREA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sluice::softdc::shm {

// Distance between words that different processes write. It is two cache lines, because the adjacent-line
// prefetcher fetches 64-byte lines in pairs.
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

// Orders all memory accesses before the fence before all accesses after it, also a store before a load. The
// two sides are "publish, fence, read `armed`" and "arm, fence, look for a completion". Without the fence,
// each side can miss the store of the other. (ThreadSanitizer does not model fences. No happens-before edge
// here depends on this fence.)
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
