// SPDX-License-Identifier: Apache-2.0
//
// Whether peers that say nothing still live (docs/decisions/0013).
#include <algorithm>
#include <utility>

#include "transport/base/error.h"
#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {

int64_t EndpointImpl::RoundNs(const Options& options) {
  // Not shorter than the device takes to say that nobody is there: its word is the better one.
  return std::max(options.keepalive_ns / 3, options.dead_peer_ns);
}

// A peer that keeps what others need has kAnswerRounds of this time to answer.
int64_t EndpointImpl::AnswerRoundNs() const {
  constexpr int64_t kWithoutKeepaliveNs = 10'000'000'000;
  return options_.keepalive_ns != 0 ? RoundNs(options_)
                                    : std::max(kWithoutKeepaliveNs, options_.dead_peer_ns);
}

// With the first peer that is up; it ends with the last.
void EndpointImpl::StartSweep() {
  someone_up_ = true;
  if (options_.keepalive_ns == 0 || sweep_timer_.armed()) return;
  sweep_.Start(clock_.NowNs());
  timers_.Schedule(&sweep_timer_, sweep_.due_ns());
}

void EndpointImpl::OnSweepTime(base::Timer*, void* context) {
  static_cast<EndpointImpl*>(context)->LookAtPeers();
}

void EndpointImpl::LookAtPeers() {
  if (closed_) return;
  // Whoever has spoken is heard before anybody is judged: this side may have been away.
  const bool heard_all = ReceiveAll();
  const uint32_t slice = sweep_.Take(peers_.size(), clock_.NowNs());
  for (size_t i = slice; i < peers_.size(); i += peer::Sweep::kSlices) {
    someone_up_ = someone_up_ || peers_[i].state == peer::State::kUp;
    LookAt(&peers_[i], heard_all);
  }
  if (sweep_.round_done() && !std::exchange(someone_up_, false)) return;
  timers_.Schedule(&sweep_timer_, sweep_.due_ns());
}

// Once a round: has it been heard since? Else it is asked, and has a round to answer.
void EndpointImpl::LookAt(Peer* peer, bool heard_all) {
  if (peer->state != peer::State::kUp) return;  // others have deadlines of their own
  if (peer->active_since_last_look) {
    peer->active_since_last_look = peer->probe_outstanding = false;
    return;
  }
  if (!peer->probe_outstanding) {
    // Without a control slot now, it is asked a round later.
    if (!PostControl(peer, peer::Kind::kProbe, /*notify=*/false)) return;
    peer->probe_outstanding = true;
    ++counters_.probes;
    return;
  }
  if (!heard_all) return;
  ++counters_.silent_peers;
  Fail(peer,
       base::Error(absl::StatusCode::kUnavailable, "the peer did not answer a keepalive probe",
                   {.layer = "peer",
                    .peer = peer->address(),
                    .operation = "keepalive",
                    .cause = "its device accepted the probe, but its program did not answer: it "
                             "hangs, or it disconnected and its goodbye was lost",
                    .remedy = "reconnect; raise keepalive_ns if the peer may be busy that long"}));
}

// The answer is what this side has granted so far, which does no harm however often it is said.
void EndpointImpl::OnProbe(Peer* peer) {
  peer->report_requested_by_peer = true;
  QueueCreditReport(peer);
}

}  // namespace sluice::endpoint
