// SPDX-License-Identifier: Apache-2.0
#include "transport/base/trace_ring.h"

#include <algorithm>
#include <bit>

namespace sluice::base {

TraceRing::TraceRing(uint32_t records) {
  if (records == 0) return;
  const uint32_t size = std::bit_ceil(std::min(records, kMaxRecords));
  mask_ = size - 1;
  slots_ = std::make_unique<Slot[]>(size);
}

std::vector<TraceRecord> TraceRing::Copy() const {
  std::vector<TraceRecord> records;
  if (mask_ == kOff) return records;
  const uint64_t size = mask_ + 1;
  const uint64_t end = next_.load(std::memory_order_acquire);
  const uint64_t first = end > size ? end - size : 0;
  records.reserve(end - first);
  for (uint64_t at = first; at < end; ++at) {
    const std::atomic<uint64_t>* const words = slots_[at & mask_].words;
    TraceRecord record;
    record.time_ns = static_cast<int64_t>(words[0].load(std::memory_order_acquire));
    record.id = words[1].load(std::memory_order_acquire);
    record.detail = words[2].load(std::memory_order_acquire);
    const uint64_t last = words[3].load(std::memory_order_acquire);
    record.number = static_cast<uint32_t>(last >> 32);
    record.event = static_cast<uint16_t>(last >> 16);
    record.code = static_cast<uint16_t>(last);
    records.push_back(record);
  }
  // If a word of a newer record was read above, `begun_` already counts that record.
  const uint64_t begun = begun_.load(std::memory_order_relaxed);
  const uint64_t whole = begun > size ? begun - size : 0;
  if (whole > first) {
    records.erase(records.begin(),
                  records.begin() + static_cast<ptrdiff_t>(std::min(whole, end) - first));
  }
  return records;
}

}  // namespace sluice::base
