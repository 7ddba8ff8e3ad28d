// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/sim/way_out.h"

#include <algorithm>

namespace sluice::softdc::sim {

void WayOut::StandInLine(const Turn& turn) {
  line_.push_back(turn);
  Serve();
}

int64_t WayOut::Take(int64_t wire_ns) {
  free_ns_ = std::max(free_ns_, clock_->now_ns()) + wire_ns;
  return free_ns_;
}

void WayOut::Serve() {
  if (scheduled_) return;
  scheduled_ = true;
  clock_->ScheduleAt(free_ns_ - kTurnAheadNs, &Fire, this, 0);
}

void WayOut::Fire(void* self, uint64_t) { static_cast<WayOut*>(self)->OnTime(); }

void WayOut::OnTime() {
  while (!line_.empty() && AheadNs() <= kTurnAheadNs) {
    const Turn turn = line_.front();
    line_.pop_front();
    turn.take(turn.who, turn.what);
  }
  scheduled_ = false;
  if (!line_.empty()) Serve();
}

}  // namespace sluice::softdc::sim
