// SPDX-License-Identifier: Apache-2.0
#include "transport/cm/pacing.h"

#include <algorithm>

namespace sluice::cm {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

}  // namespace

int64_t Pacing::DelayNs(uint32_t failures) {
  int64_t delay_ns = options_.first_delay_ns;
  for (uint32_t i = 1; i < failures && delay_ns < options_.max_delay_ns; ++i) delay_ns *= 2;
  delay_ns = std::min(delay_ns, options_.max_delay_ns);
  const int64_t half_ns = delay_ns / 2;
  if (half_ns == 0) return delay_ns;
  return delay_ns - static_cast<int64_t>(random_.Below(static_cast<uint64_t>(half_ns)));
}

int64_t Pacing::TakeTurnNs(const std::string& peer, int64_t now_ns) {
  if (options_.attempts_per_second == 0) return now_ns;
  if (full_at_ns_.size() >= max_peers_ && !full_at_ns_.contains(peer)) {
    absl::erase_if(full_at_ns_, [now_ns](const auto& entry) { return entry.second <= now_ns; });
  }
  const int64_t interval_ns = kSecondNs / options_.attempts_per_second;
  const int64_t slack_ns = interval_ns * (std::max(options_.burst, 1u) - 1);
  int64_t& full_at_ns = full_at_ns_[peer];
  const int64_t turn_ns = std::max(now_ns, full_at_ns - slack_ns);
  full_at_ns = std::max(full_at_ns, turn_ns) + interval_ns;
  if (turn_ns > now_ns) ++throttled_;
  return turn_ns;
}

}  // namespace sluice::cm
