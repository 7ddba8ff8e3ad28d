// SPDX-License-Identifier: Apache-2.0
#include "transport/base/event_log.h"

#include <algorithm>
#include <utility>

namespace sluice::base {

void EventLog::Say(Severity severity, std::string_view event, std::string_view peer,
                   std::string_view message) {
  if (sink_ == nullptr) return;
  const int64_t now_ns = clock_->NowNs();
  auto found = std::find_if(events_.begin(), events_.end(),
                            [&](const Event& one) { return one.name == event; });
  if (found == events_.end()) found = events_.insert(found, {event, now_ns});
  const int64_t full_at_ns = std::max(found->full_at_ns, now_ns) + kPeriodNs;
  if (full_at_ns - now_ns > kAtOnce * kPeriodNs) {
    ++found->left_out;
    return;
  }
  found->full_at_ns = full_at_ns;
  sink_->Write({severity, room_, event, peer, message, std::exchange(found->left_out, 0)});
}

}  // namespace sluice::base
