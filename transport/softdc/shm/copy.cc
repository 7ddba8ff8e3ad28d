// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/copy.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <numeric>

namespace sluice::softdc::shm {
namespace internal {
namespace {

void CopyBlocksPlain(std::byte* to, const std::byte* from, size_t blocks) {
  for (; blocks != 0; --blocks, to += kOrderedBlockBytes, from += kOrderedBlockBytes) {
    CopyWhole<kOrderedBlockBytes>(to, from);
  }
}

#if defined(__x86_64__)
// Uses wider stores in the same order. String instructions would be faster for large copies, but do not
// guarantee an order of their stores.
__attribute__((target("avx2"))) void CopyBlocksAvx2(std::byte* to, const std::byte* from,
                                                    size_t blocks) {
  constexpr size_t kVector = sizeof(__m256i);
  constexpr size_t kTail = kOrderedBlockBytes - kVector;
  for (; blocks != 0; --blocks, to += kOrderedBlockBytes, from += kOrderedBlockBytes) {
#pragma GCC unroll 3
    for (size_t at = 0; at < kTail; at += kVector) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + at),
                         _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at)));
      std::atomic_signal_fence(std::memory_order_acq_rel);
    }
    CopyWhole<kVector>(to + kTail, from + kTail);
  }
}
#endif

using BlockCopier = void (*)(std::byte*, const std::byte*, size_t);

BlockCopier ChooseBlockCopier() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return &CopyBlocksAvx2;
#endif
  return &CopyBlocksPlain;
}

uint64_t Mix(uint64_t value) {  // splitmix64's last step
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// Copies a block from the end to the beginning.
void CopyDescending(std::byte* to, const std::byte* from, size_t size_bytes) {
  constexpr size_t kWord = sizeof(uint64_t);
  while (size_bytes != 0) {
    const bool whole_word =
        size_bytes >= kWord && reinterpret_cast<uintptr_t>(to + size_bytes) % kWord == 0;
    const size_t step_bytes = whole_word ? kWord : 1;
    size_bytes -= step_bytes;
    std::memcpy(to + size_bytes, from + size_bytes, step_bytes);
    std::atomic_signal_fence(std::memory_order_acq_rel);
  }
}

}  // namespace

void CopyUnits(std::byte* to, const std::byte* from, size_t size_bytes) {
  const size_t past_boundary = reinterpret_cast<uintptr_t>(to) % kOrderedBlockBytes;
  if (past_boundary != 0) {
    const size_t first_bytes = kOrderedBlockBytes - past_boundary;
    CopyUnit(to, from, first_bytes);
    to += first_bytes;
    from += first_bytes;
    size_bytes -= first_bytes;
  }
  const size_t blocks = size_bytes / kOrderedBlockBytes;
  if (blocks == 1) {
    CopyWhole<kOrderedBlockBytes>(to, from);
  } else if (blocks != 0) {
    static const BlockCopier copier = ChooseBlockCopier();
    copier(to, from, blocks);
  }
  const size_t rest_bytes = size_bytes % kOrderedBlockBytes;
  if (rest_bytes != 0) {
    CopyUnit(to + size_bytes - rest_bytes, from + size_bytes - rest_bytes, rest_bytes);
  }
}

}  // namespace internal

void CopyRelaxed(std::byte* to, const std::byte* from, size_t size_bytes) {
  // A longer memcpy would bypass the caches, although the reader reads the data soon.
  constexpr size_t kChunkBytes = size_t{64} << 10;
  constexpr size_t kSmallBytes = 1024;
  for (; size_bytes > kChunkBytes;
       size_bytes -= kChunkBytes, to += kChunkBytes, from += kChunkBytes) {
    std::memcpy(to, from, kChunkBytes);
  }
  if (size_bytes <= kSmallBytes) return CopyInOrder(to, from, size_bytes);
  // Leaves an aligned word at the end, or a few bytes more, for CopyUnit.
  constexpr size_t kLastBytes = 16;
  std::memcpy(to, from, size_bytes - kLastBytes);
  std::atomic_signal_fence(std::memory_order_acq_rel);
  internal::CopyUnit(to + size_bytes - kLastBytes, from + size_bytes - kLastBytes, kLastBytes);
}

// Copies the blocks in an order that a reader cannot predict, without a table. The index advances by `step`
// modulo the number of blocks. The two are coprime, so each block is copied once.
void CopyShuffled(std::byte* to, const std::byte* from, size_t size_bytes, size_t block_bytes,
                  uint64_t seed) {
  if (size_bytes == 0) return;
  const uint64_t begin = reinterpret_cast<uintptr_t>(to);
  const uint64_t first_block = begin / block_bytes;
  const uint64_t blocks = (begin + size_bytes - 1) / block_bytes - first_block + 1;
  uint64_t step = 1 + internal::Mix(seed) % blocks;
  while (std::gcd(step, blocks) != 1) ++step;
  uint64_t index = internal::Mix(seed + 1) % blocks;
  for (uint64_t i = 0; i < blocks; ++i, index = (index + step) % blocks) {
    const uint64_t block_begin = std::max(begin, (first_block + index) * block_bytes);
    const uint64_t block_end =
        std::min(begin + size_bytes, (first_block + index + 1) * block_bytes);
    const uint64_t offset = block_begin - begin;
    if (block_bytes >= kOrderedBlockBytes) {
      internal::CopyUnit(to + offset, from + offset, block_end - block_begin);
    } else {
      internal::CopyDescending(to + offset, from + offset, block_end - block_begin);
    }
    std::atomic_signal_fence(std::memory_order_acq_rel);
  }
}

}  // namespace sluice::softdc::shm
