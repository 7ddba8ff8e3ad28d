// SPDX-License-Identifier: Apache-2.0
//
// The wr_id of the last request of a draining DCI: it names the DCI and the drain. Its index part is larger than the index of any
// slot.
#ifndef SLUICE_TRANSPORT_QUEUE_SENTINEL_H_
#define SLUICE_TRANSPORT_QUEUE_SENTINEL_H_

#include <cstdint>

namespace sluice::queue {

inline constexpr uint64_t kSentinelBit = uint64_t{1} << 31;

inline uint64_t SentinelId(uint16_t dci, uint32_t drain) {
  return (uint64_t{drain} << 32) | kSentinelBit | dci;
}
inline bool IsSentinel(uint64_t wr_id) { return (wr_id & kSentinelBit) != 0; }
inline uint32_t SentinelDrain(uint64_t wr_id) { return static_cast<uint32_t>(wr_id >> 32); }
inline uint16_t SentinelDci(uint64_t wr_id) { return static_cast<uint16_t>(wr_id); }

}  // namespace sluice::queue

#endif  // SLUICE_TRANSPORT_QUEUE_SENTINEL_H_
