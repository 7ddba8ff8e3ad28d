// SPDX-License-Identifier: Apache-2.0
//
// TraceRing: the last things that happened on one thread, 32 bytes each, in fixed memory. What the events mean is their
// writer's; middleware/observe/trace_events.h names those of calls.
//
// Bound         `records`, a power of two, or 0: then nothing is kept. The newest overwrite the oldest.
// Cost          Six plain stores; no clock is read here.
// Which thread  Add(): as Tally::Add(). Copy(): any; records that are overwritten while they are copied are left out.
#ifndef SLUICE_TRANSPORT_BASE_TRACE_RING_H_
#define SLUICE_TRANSPORT_BASE_TRACE_RING_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace sluice::base {

struct TraceRecord {
  int64_t time_ns = 0;  // of the writer's clock
  uint64_t id = 0;      // of what it is about: a call's number, …
  uint64_t detail = 0;  // as the event says
  uint32_t number = 0;
  uint16_t event = 0;
  uint16_t code = 0;

  friend bool operator==(const TraceRecord&, const TraceRecord&) = default;
};
static_assert(sizeof(TraceRecord) == 32);

class TraceRing {
 public:
  static constexpr uint32_t kMaxRecords = 1u << 20;

  // `records` is rounded up to a power of two.
  explicit TraceRing(uint32_t records);

  void Add(const TraceRecord& record) {
    if (mask_ == kOff) return;
    const uint64_t at = next_.load(std::memory_order_relaxed);
    std::atomic<uint64_t>* const words = slots_[at & mask_].words;
    // Before the words: a reader that sees one of them sees this too, and leaves out the record that was there.
    begun_.store(at + 1, std::memory_order_relaxed);
    words[0].store(static_cast<uint64_t>(record.time_ns), std::memory_order_release);
    words[1].store(record.id, std::memory_order_release);
    words[2].store(record.detail, std::memory_order_release);
    words[3].store(uint64_t{record.number} << 32 | uint64_t{record.event} << 16 | record.code,
                   std::memory_order_release);
    next_.store(at + 1, std::memory_order_release);
  }

  // The oldest first.
  std::vector<TraceRecord> Copy() const;
  uint64_t added() const { return next_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint64_t kOff = UINT64_MAX;
  struct Slot {
    std::atomic<uint64_t> words[4];
  };

  uint64_t mask_ = kOff;
  std::unique_ptr<Slot[]> slots_;
  std::atomic<uint64_t> next_{0};   // records that were added
  std::atomic<uint64_t> begun_{0};  // the same, with the one that is being added
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_TRACE_RING_H_
