// SPDX-License-Identifier: Apache-2.0
//
// The copy that a DMA engine would make, with the promises that ibv_query_qp_data_in_order states.
//
//   CopyInOrder   bytes become visible in ascending order, across the whole message. The last word of
//                 each unit (a 128-byte block of the destination, or what the message has of it) is
//                 stored by a release store after all others: a reader that polls it by an acquire
//                 load sees what stands before it.
//   CopyRelaxed   for regions registered with relaxed ordering: only the last word comes last. Large
//                 copies are half as fast again, since string instructions need not read the lines
//                 that they overwrite.
//   CopyShuffled  weaker promises: blocks land in a random order, so that a reader who relies on more
//                 than was promised finds out. Blocks of 128 bytes are in order inside; smaller ones
//                 are not.
//
// "Word": the last 8 bytes of the unit where they are aligned, else its last byte.
// Thread-safety: as memcpy. No lock, no system call, no allocation.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_COPY_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_COPY_H_

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/softdc/model/mutation.h"

namespace sluice::softdc::shm {

inline constexpr size_t kOrderedBlockBytes = 128;

namespace internal {

// Ascending stores; x86 makes them visible in program order, and the barrier keeps the compiler
// from changing it.
inline void CopyVector(std::byte* to, const std::byte* from) {
#if defined(__SSE2__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  std::memcpy(to, from, 8);
  std::atomic_signal_fence(std::memory_order_acq_rel);
  std::memcpy(to + 8, from + 8, 8);
#endif
  std::atomic_signal_fence(std::memory_order_acq_rel);
}

inline void CopyAscending(std::byte* to, const std::byte* from, size_t size_bytes) {
  constexpr size_t kVector = 16;
  for (; size_bytes >= kVector; size_bytes -= kVector, to += kVector, from += kVector) {
    CopyVector(to, from);
  }
  for (; size_bytes >= sizeof(uint64_t);
       size_bytes -= sizeof(uint64_t), to += sizeof(uint64_t), from += sizeof(uint64_t)) {
    std::memcpy(to, from, sizeof(uint64_t));
    std::atomic_signal_fence(std::memory_order_acq_rel);
  }
  for (; size_bytes != 0; --size_bytes, ++to, ++from) {
    *to = *from;
    std::atomic_signal_fence(std::memory_order_acq_rel);
  }
}

// size_bytes >= 1.
inline void CopyUnit(std::byte* to, const std::byte* from, size_t size_bytes) {
  constexpr size_t kWord = sizeof(uint64_t);
  std::byte* const last = to + size_bytes - kWord;
  if (size_bytes >= kWord && reinterpret_cast<uintptr_t>(last) % kWord == 0) {
    CopyAscending(to, from, size_bytes - kWord);
    uint64_t word;
    std::memcpy(&word, from + size_bytes - kWord, kWord);
    std::atomic_ref(*reinterpret_cast<uint64_t*>(last)).store(word, std::memory_order_release);
    return;
  }
  // No aligned last word: the last byte is the one that a reader can poll.
  CopyAscending(to, from, size_bytes - 1);
  std::atomic_ref(to[size_bytes - 1]).store(from[size_bytes - 1], std::memory_order_release);
}

// CopyUnit of 64 bytes whose last word is aligned: what most small messages are.
inline void CopyLine(std::byte* to, const std::byte* from) {
  CopyVector(to, from);
  CopyVector(to + 16, from + 16);
  CopyVector(to + 32, from + 32);
  uint64_t words[2];
  std::memcpy(words, from + 48, sizeof(words));
  std::memcpy(to + 48, &words[0], sizeof(uint64_t));
  std::atomic_ref(*reinterpret_cast<uint64_t*>(to + 56)).store(words[1], std::memory_order_release);
}

// Whole blocks, `to` aligned to them.
void CopyBlocks(std::byte* to, const std::byte* from, size_t blocks);

}  // namespace internal

inline void CopyInOrder(std::byte* to, const std::byte* from, size_t size_bytes) {
  if (size_bytes == 0) return;
  const size_t to_boundary =
      kOrderedBlockBytes - reinterpret_cast<uintptr_t>(to) % kOrderedBlockBytes;
  if (size_bytes == 64 && to_boundary >= 64 && to_boundary % sizeof(uint64_t) == 0) {
    return internal::CopyLine(to, from);
  }
  if (size_bytes <= to_boundary) return internal::CopyUnit(to, from, size_bytes);
  if (to_boundary != kOrderedBlockBytes) {
    internal::CopyUnit(to, from, to_boundary);
    to += to_boundary;
    from += to_boundary;
    size_bytes -= to_boundary;
  }
  const size_t blocks = size_bytes / kOrderedBlockBytes;
  internal::CopyBlocks(to, from, blocks);
  const size_t rest_bytes = size_bytes % kOrderedBlockBytes;
  if (rest_bytes != 0) {
    internal::CopyUnit(to + size_bytes - rest_bytes, from + size_bytes - rest_bytes, rest_bytes);
  }
}

void CopyRelaxed(std::byte* to, const std::byte* from, size_t size_bytes);

// block_bytes: 64 or 128. Another seed, another order.
void CopyShuffled(std::byte* to, const std::byte* from, size_t size_bytes, size_t block_bytes,
                  uint64_t seed);

enum class CopyOrder : uint8_t {
  kWholeMessage,
  kBlocks128,  // blocks of 128 bytes in order inside, in no order among themselves
  kNone,
};

// Another order each time, where there is none to keep. relaxed: the destination's region is.
// Inlined always: with a constant order that leaves one call, and the compiler sees it only then.
[[gnu::always_inline]] inline void Copy(CopyOrder order, bool relaxed, std::byte* to,
                                        const std::byte* from, size_t size_bytes) {
  static thread_local uint64_t copies = 0;
  if (Mutated(Mutation::kPayloadUnordered)) order = CopyOrder::kNone;
  switch (order) {
    case CopyOrder::kWholeMessage:
      if (relaxed) return CopyRelaxed(to, from, size_bytes);
      return CopyInOrder(to, from, size_bytes);
    case CopyOrder::kBlocks128:
      return CopyShuffled(to, from, size_bytes, kOrderedBlockBytes, ++copies);
    case CopyOrder::kNone:
      return CopyShuffled(to, from, size_bytes, kOrderedBlockBytes / 2, ++copies);
  }
}

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_COPY_H_
