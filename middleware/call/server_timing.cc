// SPDX-License-Identifier: Apache-2.0
//
// ServerEngine: durations of calls that were answered inline, and warnings about handlers that held the polling thread.
#include <string>

#include "absl/strings/str_cat.h"
#include "middleware/call/server_engine.h"

namespace sluice::call {

// Records the durations of this pass. If the clock was not read in this pass, the calls are of an earlier pass that was not timed.
void ServerEngine::TimeInline() {
  if (now_is_stale_) return ReadClock();
  now_ns_ = clock_->NowNs();
  SettleInline(quiet_passes_ >= kQuietPasses ? 1 : sampler_.every());
}

// Settles the noted calls. Call after a reading of the clock. `times`: number of times that each call counts in the histogram.
void ServerEngine::SettleInline(uint32_t times) {
  if (now_ns_ - ran_since_ns_ >= options_.slow_call_ns) SayHeld();
  for (uint32_t i = 0; i < ran_count_; ++i) {
    if (times != 0) ran_[i].stats->RecordLatency(now_ns_ - ran_since_ns_, times);
    CheckSlow(ran_[i].peer, *ran_[i].stats, ran_since_ns_, ran_[i].code);
  }
  ran_count_ = 0;
}

// Warns that the polling thread was held: all callers of this thread have waited.
void ServerEngine::SayHeld() {
  if (!log_.listens()) return;
  const std::string others =
      ran_count_ == 1 ? "" : absl::StrCat(" and ", ran_count_ - 1, " before it in the same pass");
  log_.Say(base::Severity::kWarning, "poller held", "",
           absl::StrCat("the polling thread was held for ", (now_ns_ - ran_since_ns_) / 1'000'000,
                        " ms by ", ran_[ran_count_ - 1].stats->name(), others,
                        ": register what takes long with an executor, or make it a coroutine"));
}

void ServerEngine::CheckSlow(endpoint::PeerId id, const observe::MethodStats& stats,
                             int64_t received_ns, absl::StatusCode code) {
  if (now_ns_ - received_ns < options_.slow_call_ns) return;
  const Peer* peer = Find(id);
  slow_calls_.Add({stats.name(), peer == nullptr ? "" : peer->address, received_ns,
                   now_ns_ - received_ns, code, peer == nullptr ? "" : peer->tenant});
}

}  // namespace sluice::call
