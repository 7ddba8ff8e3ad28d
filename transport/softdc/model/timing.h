// SPDX-License-Identifier: Apache-2.0
//
// Decodes the times of ibv_modify_qp(3).
//
// Threads       Any: pure functions.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_TIMING_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_TIMING_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "transport/softdc/config/dials.h"

namespace sluice::softdc {

inline constexpr uint8_t kInfiniteRnrRetry = 7;

// The 5-bit encoding of min_rnr_timer (IBA 9.7.5.2.8).
inline int64_t RnrTimerNs(uint32_t encoded) {
  // In units of 10 us, by code.
  constexpr std::array<uint32_t, 32> kTenUs = {
      65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return int64_t{kTenUs[encoded % kTenUs.size()]} * 10'000;
}

// Returns the time for which one of the retry_count + 1 tries of a request waits for an answer. It is 4.096 us * 2^timeout, unless the
// dials say otherwise. With timeout 0, a try waits without limit.
inline int64_t TryNs(uint8_t timeout, uint8_t retry_count, const Dials::Retries& dials) {
  if (timeout == 0) return INT64_MAX / 16;
  if (dials.total_retry_ns != 0) return dials.total_retry_ns / (retry_count + 1) + 1;
  return (int64_t{4096} << std::max(timeout, dials.min_timeout)) * dials.timeout_factor;
}

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_TIMING_H_
