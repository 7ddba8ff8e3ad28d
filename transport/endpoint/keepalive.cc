// SPDX-License-Identifier: Apache-2.0
//
// Keepalive probes of silent peers (docs/decisions/0013).
#include <algorithm>
#include <utility>

#include "transport/base/error.h"
#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {

int64_t EndpointImpl::RoundNs(const Options& options) {
  // Not shorter than the time in which the device reports an unreachable peer: that report is more reliable.
  return std::max(options.keepalive_ns / 3, options.dead_peer_ns);
}

// A peer that keeps resources that other peers need has kAnswerRounds of this time to answer.
int64_t EndpointImpl::AnswerRoundNs() const {
  constexpr int64_t kWithoutKeepaliveNs = 10'000'000'000;
  return options_.keepalive_ns != 0 ? RoundNs(options_)
                                    : std::max(kWithoutKeepaliveNs, options_.dead_peer_ns);
}

// Starts the sweep with the first peer that is up. It ends after a round in which no peer is up.
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
  // Handles all messages that have arrived before it checks peers, because this thread may have been stopped.
  const bool heard_all = ReceiveAll();
  const uint32_t slice = sweep_.Take(peers_.size(), clock_.NowNs());
  for (size_t i = slice; i < peers_.size(); i += peer::Sweep::kSlices) {
    someone_up_ = someone_up_ || peers_[i].state == peer::State::kUp;
    LookAt(&peers_[i], heard_all);
  }
  if (sweep_.round_done() && !std::exchange(someone_up_, false)) return;
  timers_.Schedule(&sweep_timer_, sweep_.due_ns());
}

// Checks a peer once a round. A peer without a message since the last check is probed, and has a round to answer.
void EndpointImpl::LookAt(Peer* peer, bool heard_all) {
  if (peer->state != peer::State::kUp) return;  // other states have their own deadlines
  if (peer->active_since_last_look) {
    peer->active_since_last_look = peer->probe_outstanding = false;
    return;
  }
  if (!peer->probe_outstanding) {
    // A few more than any peer gets without this check: a peer that hangs with unread messages must be found.
    const uint32_t most = slots_->control_slots() / 4 + kFewControlSlots;
    const bool posted = PostControl(peer, peer::Kind::kProbe, /*notify=*/false, most);
    // Without a free control slot, the peer is probed a round later. A peer with so many unread messages needs no probe.
    if (!posted && slots_->free_control() == 0) return;
    peer->probe_outstanding = true;
    counters_.probes += posted ? 1 : 0;
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

// The answer is a report of the grants so far. A repeated report is harmless.
void EndpointImpl::OnProbe(Peer* peer) {
  peer->report_requested_by_peer = true;
  QueueCreditReport(peer);
}

}  // namespace sluice::endpoint
