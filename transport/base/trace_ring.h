// SPDX-License-Identifier: Apache-2.0
//
// TraceRing: recent events of one thread, 32 bytes each, in fixed memory. The writer defines the
// events; middleware/observe/trace_events.h lists those of calls.
//
// Threads       Add(): as Tally::Add(). Copy(): any; records that are overwritten during the copy
//               are omitted.
// Limits        `records`: a power of two, or 0: no records are kept. The newest records overwrite
//               the oldest.
// Cost          Six plain stores; it does not read a clock.
#ifndef SLUICE_TRANSPORT_BASE_TRACE_RING_H_
#define SLUICE_TRANSPORT_BASE_TRACE_RING_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace sluice::base {

struct TraceRecord {
  int64_t time_ns = 0;  // time of the writer's clock
  uint64_t id = 0;      // identifies the object: number of a call, …
  uint64_t detail = 0;  // defined by the event
  uint32_t number = 0;
  uint16_t event = 0;
  uint16_t code = 0;

  friend bool operator==(const TraceRecord&, const TraceRecord&) = default;
};
static_assert(sizeof(TraceRecord) == 32);

class TraceRing {
 public:
  static constexpr uint32_t kMaxRecords = 1u << 20;

  // `records` is limited to kMaxRecords and rounded up to a power of two.
  explicit TraceRing(uint32_t records);

  void Add(const TraceRecord& record) {
    if (mask_ == kOff) return;
    const uint64_t at = next_.load(std::memory_order_relaxed);
    std::atomic<uint64_t>* const words = slots_[at & mask_].words;
    // Stored before the words: a reader that sees one of them sees this value too, and omits the
    // old record.
    begun_.store(at + 1, std::memory_order_relaxed);
    words[0].store(static_cast<uint64_t>(record.time_ns), std::memory_order_release);
    words[1].store(record.id, std::memory_order_release);
    words[2].store(record.detail, std::memory_order_release);
    words[3].store(uint64_t{record.number} << 32 | uint64_t{record.event} << 16 | record.code,
                   std::memory_order_release);
    next_.store(at + 1, std::memory_order_release);
  }

  // Returns the records, oldest first.
  std::vector<TraceRecord> Copy() const;
  uint64_t added() const { return next_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint64_t kOff = UINT64_MAX;
  struct Slot {
    std::atomic<uint64_t> words[4];
  };

  uint64_t mask_ = kOff;
  std::unique_ptr<Slot[]> slots_;
  std::atomic<uint64_t> next_{0};   // records added
  std::atomic<uint64_t> begun_{0};  // records added or being added
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_TRACE_RING_H_
