// SPDX-License-Identifier: Apache-2.0
//
// Copies as a DMA engine does, with the ordering guarantees that ibv_query_qp_data_in_order reports.
//
//   CopyInOrder   Bytes become visible in ascending order, across the whole message. A unit is a 128-byte block
//                 of the destination, or the part of the message in that block. The last word of each unit is
//                 stored by a release store after all others. A reader that polls this word by an acquire load
//                 sees the bytes before it.
//   CopyRelaxed   For regions registered with relaxed ordering: only the last word is stored last. Large copies
//                 are half as fast again, since string instructions need not read the lines that they overwrite.
//   CopyShuffled  Weaker guarantees: blocks become visible in a random order. A reader that relies on more than
//                 the guarantee fails. Blocks of 128 bytes are in order inside, smaller blocks are not.
//
// "Word": the last 8 bytes of the unit if they are aligned, else its last byte.
//
// Threads       As memcpy. No lock, no system call, no allocation.
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

// Stores in ascending order. x86 makes them visible in program order, and the barrier prevents the compiler
// from reordering them.
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

// Copies kBytes: 1, 2, 4 or 8 by one store, more by vectors.
template <size_t kBytes>
[[gnu::always_inline]] inline void CopyStep(std::byte* to, const std::byte* from) {
  if constexpr (kBytes > 16) {
    CopyStep<16>(to, from);
    CopyStep<kBytes - 16>(to + 16, from + 16);
  } else if constexpr (kBytes == 16) {
    CopyVector(to, from);
  } else {
    std::memcpy(to, from, kBytes);
    std::atomic_signal_fence(std::memory_order_acq_rel);
  }
}

// Copies less than one block. Unrolled, because most messages are short and a loop takes longer than their
// stores.
[[gnu::always_inline]] inline void CopyAscending(std::byte* to, const std::byte* from,
                                                 size_t size_bytes) {
  constexpr size_t kVector = 16;
  static_assert(kOrderedBlockBytes == 8 * kVector);
  const size_t vectors = (size_bytes / kVector) % 8;
  to += vectors * kVector;
  from += vectors * kVector;
  switch (vectors) {
    case 7:
      CopyVector(to - 112, from - 112);
      [[fallthrough]];
    case 6:
      CopyVector(to - 96, from - 96);
      [[fallthrough]];
    case 5:
      CopyVector(to - 80, from - 80);
      [[fallthrough]];
    case 4:
      CopyVector(to - 64, from - 64);
      [[fallthrough]];
    case 3:
      CopyVector(to - 48, from - 48);
      [[fallthrough]];
    case 2:
      CopyVector(to - 32, from - 32);
      [[fallthrough]];
    case 1:
      CopyVector(to - 16, from - 16);
  }
  if ((size_bytes & 8) != 0) {
    CopyStep<8>(to, from);
    to += 8;
    from += 8;
  }
  for (size_bytes %= 8; size_bytes != 0; --size_bytes, ++to, ++from) CopyStep<1>(to, from);
}

// Copies one unit of 1 to kOrderedBlockBytes.
[[gnu::always_inline]] inline void CopyUnit(std::byte* to, const std::byte* from,
                                            size_t size_bytes) {
  constexpr size_t kWord = sizeof(uint64_t);
  const bool whole_word =
      size_bytes >= kWord && reinterpret_cast<uintptr_t>(to + size_bytes) % kWord == 0;
  const size_t before = size_bytes - (whole_word ? kWord : 1);
  CopyAscending(to, from, before);
  if (whole_word) [[likely]] {
    uint64_t word;
    std::memcpy(&word, from + before, kWord);
    std::atomic_ref(*reinterpret_cast<uint64_t*>(to + before))
        .store(word, std::memory_order_release);
    return;
  }
  // No aligned last word: a reader can poll the last byte.
  std::atomic_ref(to[before]).store(from[before], std::memory_order_release);
}

// CopyUnit for kBytes with an aligned last word: 64, the size of most small messages, or a block.
template <size_t kBytes>
inline void CopyWhole(std::byte* to, const std::byte* from) {
  CopyStep<kBytes - 16>(to, from);
  uint64_t words[2];
  std::memcpy(words, from + kBytes - 16, sizeof(words));
  std::memcpy(to + kBytes - 16, &words[0], sizeof(uint64_t));
  std::atomic_ref(*reinterpret_cast<uint64_t*>(to + kBytes - 8))
      .store(words[1], std::memory_order_release);
}

// CopyInOrder for more than one unit.
void CopyUnits(std::byte* to, const std::byte* from, size_t size_bytes);

}  // namespace internal

[[gnu::always_inline]] inline void CopyInOrder(std::byte* to, const std::byte* from,
                                               size_t size_bytes) {
  if (size_bytes == 0) return;
  const size_t to_boundary =
      kOrderedBlockBytes - reinterpret_cast<uintptr_t>(to) % kOrderedBlockBytes;
  if (size_bytes > to_boundary) return internal::CopyUnits(to, from, size_bytes);
  if (size_bytes == 64 && to_boundary % sizeof(uint64_t) == 0) {
    return internal::CopyWhole<64>(to, from);
  }
  internal::CopyUnit(to, from, size_bytes);
}

void CopyRelaxed(std::byte* to, const std::byte* from, size_t size_bytes);

// block_bytes: 64 or 128. A different seed gives a different order.
void CopyShuffled(std::byte* to, const std::byte* from, size_t size_bytes, size_t block_bytes,
                  uint64_t seed);

enum class CopyOrder : uint8_t {
  kWholeMessage,
  kBlocks128,  // blocks of 128 bytes: in order inside a block, no order between blocks
  kNone,
};

// Copies in the given order. If blocks have no order, each call uses a different one. relaxed: the region of
// the destination has relaxed ordering. Always inlined: with a constant order only one call remains, and the
// compiler sees this only after inlining.
[[gnu::always_inline]] inline void Copy(CopyOrder order, bool relaxed, std::byte* to,
                                        const std::byte* from, size_t size_bytes) {
  static thread_local uint64_t copies = 0;
  if (Mutated(Mutation::kPayloadUnordered)) order = CopyOrder::kNone;
  if (order == CopyOrder::kWholeMessage) [[likely]] {
    if (relaxed) return CopyRelaxed(to, from, size_bytes);
    return CopyInOrder(to, from, size_bytes);
  }
  switch (order) {
    case CopyOrder::kWholeMessage:
      break;
    case CopyOrder::kBlocks128:
      return CopyShuffled(to, from, size_bytes, kOrderedBlockBytes, ++copies);
    case CopyOrder::kNone:
      return CopyShuffled(to, from, size_bytes, kOrderedBlockBytes / 2, ++copies);
  }
}

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_COPY_H_
