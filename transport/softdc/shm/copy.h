// SPDX-License-Identifier: Apache-2.0
//
// The copy that a DMA engine would make, with the promise that ibv_query_qp_data_in_order states:
// bytes become visible in ascending order, and the last word is stored by a release store after all
// others. A reader that polls the last word of a message, or of any block of it, sees what stands
// before it.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_COPY_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_COPY_H_

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sluice::softdc::shm {
namespace internal {

// Ascending stores; x86 makes them visible in program order, and the barrier keeps the compiler
// from changing it.
inline void CopyAscending(std::byte* to, const std::byte* from, size_t size_bytes) {
#if defined(__SSE2__)
  constexpr size_t kVector = sizeof(__m128i);
  for (; size_bytes >= kVector; size_bytes -= kVector, to += kVector, from += kVector) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    std::atomic_signal_fence(std::memory_order_acq_rel);
  }
#endif
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

}  // namespace internal

inline void CopyInOrder(std::byte* to, const std::byte* from, size_t size_bytes) {
  if (size_bytes == 0) return;
  constexpr size_t kWord = sizeof(uint64_t);
  std::byte* const last = to + size_bytes - kWord;
  if (size_bytes >= kWord && reinterpret_cast<uintptr_t>(last) % kWord == 0) {
    internal::CopyAscending(to, from, size_bytes - kWord);
    uint64_t word;
    std::memcpy(&word, from + size_bytes - kWord, kWord);
    std::atomic_ref(*reinterpret_cast<uint64_t*>(last)).store(word, std::memory_order_release);
    return;
  }
  // No aligned last word: the last byte is the one that a reader can poll.
  internal::CopyAscending(to, from, size_bytes - 1);
  std::atomic_ref(to[size_bytes - 1]).store(from[size_bytes - 1], std::memory_order_release);
}

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_COPY_H_
