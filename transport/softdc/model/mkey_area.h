// SPDX-License-Identifier: Apache-2.0
//
// One memory key in the owner's arena: its configuration, and the record of the last mismatch. Both ends of a transfer use it: the side that
// moves the bytes reads the configuration and writes the record.
//
// The states of the record:
//
//   armed --found--> being written --> pending --owner polls the CQ it was found on--> collected
//     ^                                                                                    |
//     +------------------------------- next configuration ---------------------------------+
//
// While the record is not armed, further mismatches are not recorded (docs/facts.md, 140).
//
// Threads       Any thread of any process. A process may die at any point: a half-written configuration cannot be used, and a half-written
//               record is never read.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_AREA_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_AREA_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "transport/softdc/model/mkey_layout.h"
#include "transport/softdc/shm/layout.h"
#include "transport/softdc/signature/transform.h"

namespace sluice::softdc {

inline constexpr uint32_t kMaxMkeys = 4096;
inline constexpr uint32_t kFirstMkeyIndex = shm::kMaxMemoryRegions;  // of the keys' upper 24 bits

// Returns whether `key` is an indirect key: its index is above those of memory regions, and its low byte is 0.
inline bool IsMkey(uint32_t key) {
  const uint32_t index = key >> 8;
  return (key & 0xff) == 0 && index >= kFirstMkeyIndex && index < kFirstMkeyIndex + kMaxMkeys;
}
inline uint32_t MkeyIndex(uint32_t key) { return (key >> 8) - kFirstMkeyIndex; }
inline uint32_t MkeyAt(uint32_t index) { return (kFirstMkeyIndex + index) << 8; }

// A value with one writer at a time and any number of readers. A reader gets one complete version, or Load returns false.
template <typename T>
class SeqBox {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(uint64_t) == 0);

 public:
  void Store(const T& value) {
    const uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    const auto* from = reinterpret_cast<const char*>(&value);
    for (size_t i = 0; i < kWords; ++i) {
      uint64_t word;
      std::memcpy(&word, from + i * sizeof(word), sizeof(word));
      words_[i].store(word, std::memory_order_relaxed);
    }
    version_.store(version + 2, std::memory_order_release);
  }

  bool Load(T* value) const {
    for (int tries = 0; tries < kTries; ++tries) {
      const uint64_t version = version_.load(std::memory_order_acquire);
      auto* to = reinterpret_cast<char*>(value);
      for (size_t i = 0; i < kWords; ++i) {
        const uint64_t word = words_[i].load(std::memory_order_relaxed);
        std::memcpy(to + i * sizeof(word), &word, sizeof(word));
      }
      std::atomic_thread_fence(std::memory_order_acquire);
      if (version % 2 == 0 && version_.load(std::memory_order_relaxed) == version) return true;
    }
    return false;
  }

 private:
  static constexpr size_t kWords = sizeof(T) / sizeof(uint64_t);
  static constexpr int kTries = 100;
  std::atomic<uint64_t> version_;
  std::atomic<uint64_t> words_[kWords];
};

struct alignas(64) MkeyArea {
  enum RecordState : uint32_t { kArmed = 0, kBeingWritten, kPending, kCollected };

  std::atomic<uint32_t> key;           // 0: free
  std::atomic<uint32_t> record_state;  // RecordState
  std::atomic<uint32_t> record_cq;     // id of the owner's CQ that has to be polled
  std::atomic<uint32_t> fault;         // signature::Fault
  std::atomic<uint64_t> actual;
  std::atomic<uint64_t> expected;
  std::atomic<uint64_t> offset_bytes;
  SeqBox<MkeyConfig> config;

  // Records the mismatch and returns true if the record is armed. Otherwise returns false.
  bool Record(const signature::Mismatch& mismatch, uint32_t cq_id) {
    uint32_t state = kArmed;
    if (!record_state.compare_exchange_strong(state, kBeingWritten, std::memory_order_acquire,
                                              std::memory_order_relaxed)) {
      return false;
    }
    record_cq.store(cq_id, std::memory_order_relaxed);
    fault.store(static_cast<uint32_t>(mismatch.fault), std::memory_order_relaxed);
    actual.store(mismatch.actual, std::memory_order_relaxed);
    expected.store(mismatch.expected, std::memory_order_relaxed);
    offset_bytes.store(mismatch.offset_bytes, std::memory_order_relaxed);
    record_state.store(kPending, std::memory_order_release);
    return true;
  }
};

// The whole table, in the arena.
struct MkeyTableArea {
  alignas(64) std::atomic<uint32_t> recorded;  // mismatches, since the context was opened
  MkeyArea areas[kMaxMkeys];

  MkeyArea* Find(uint32_t key) {
    if (!IsMkey(key)) return nullptr;
    MkeyArea& area = areas[MkeyIndex(key)];
    return area.key.load(std::memory_order_acquire) == key ? &area : nullptr;
  }

  void Record(MkeyArea& area, const signature::Mismatch& mismatch, uint32_t cq_id) {
    if (area.Record(mismatch, cq_id)) recorded.fetch_add(1, std::memory_order_release);
  }
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_AREA_H_
