// SPDX-License-Identifier: Apache-2.0
//
// Recovery after errors: retransmission, probes for missing credit, and a watch for send queues that
// died without an error (docs/decisions/0016, 0017, 0019).
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "transport/base/error.h"
#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {
namespace {

// Time after which a missing grant is requested.
constexpr int64_t kAskNs = 2'000'000;
// Maximum number of peers that are asked at one time.
constexpr size_t kMaxAsks = 64;
// After dead_peer_ns / kCrowdedPart, messages to a peer whose control queue was full are retransmitted.
constexpr int64_t kCrowdedPart = 32;

absl::Status Lost(const Peer& peer) {
  return base::Error(
      absl::StatusCode::kUnavailable, "messages to the peer may be lost",
      {.layer = "endpoint",
       .peer = peer.address(),
       .operation = "send",
       .cause = "the send queue was recovered, and the messages were not kept for retransmission",
       .remedy = "reconnect"});
}

}  // namespace

// Called from inside the queue. TellResends() calls the handler later.
void EndpointImpl::OnTargetReset(queue::Target* target, const absl::Status& why) {
  if (IsForLarge(*target)) return ResumeLarge(target);
  Peer* peer = &peers_[target->cookie];
  if (peer->resend) return;
  peer->resend = 1;
  if (target->crowded) {
    target->crowded = false;
    crowded_.push_back({peer->id(), why});
    if (crowd_timer_.armed()) return;
    timers_.Schedule(&crowd_timer_, clock_.NowNs() + options_.dead_peer_ns / kCrowdedPart);
    return;
  }
  resends_.push_back({peer->id(), why});
}

void EndpointImpl::ResendToCrowded() {
  resends_.insert(resends_.end(), crowded_.begin(), crowded_.end());
  crowded_.clear();
}

void EndpointImpl::TellResends() {
  std::vector<Down> now;
  now.swap(resends_);
  for (const auto& [id, why] : now) {
    Peer* peer = Find(id);
    if (peer == nullptr || !peer->resend) continue;
    peer->resend = 0;
    if (!why.ok()) {
      log_.Say(base::Severity::kWarning, "request failed", peer->address(),
               "a request failed; what was not acknowledged is sent again: " +
                   std::string(why.message()));
    }
    queue_->Resume(&peer->target);
    if (peer->state == peer::State::kProving && !peer->handshake()->unsaid) SayTerms(peer);
    if (peer->state != peer::State::kUp) continue;
    // The client accepts no message before the answer of the handshake, so the answer goes first.
    if (peer->handshake() != nullptr && !PostAnswer(peer)) {
      peer->target.broken = true;
      OnTargetReset(&peer->target, why);  // retried when a control slot is free
      continue;
    }
    peer->report_requested = peer->report_needed = 0;
    if (peer->lanes != 0) RenewLaneWords(peer);
    if (peer->old_targets) OweTargets(peer);
    RepeatWindowWords(peer);
    ++counters_.resends;
    const bool kept = closed_ || handler_->OnResend(id);
    if (Find(id) == nullptr || peer->state != peer::State::kUp) continue;
    if (!kept && peer->target.unacknowledged != 0) {
      peer->unanswered = !why.ok();
      Fail(peer, why.ok() ? Lost(*peer) : why);
      continue;
    }
    RepeatControl(peer);
  }
}

// Called from inside the queue. The peer's data is not lost: it goes another way, or is acknowledged.
void EndpointImpl::OnControlLost(queue::Target* target) {
  if (IsForLarge(*target)) return;
  lost_control_.push_back(peers_[target->cookie].id());
}

void EndpointImpl::RepeatLostControl() {
  std::vector<PeerId> now;
  now.swap(lost_control_);
  for (const PeerId id : now) {
    Peer* peer = Find(id);
    // A resend repeats all of it. One entry of several is enough, but repeating is harmless.
    if (peer == nullptr || peer->state != peer::State::kUp || peer->resend) continue;
    ++counters_.control_repeats;
    // If a request for a report was lost, this side would wait for the report without limit.
    if (peer->report_requested) {
      peer->report_requested = 0;
      peer->report_needed = 1;
      OnReport(peer);
    }
    if (peer->lanes != 0) {
      PeerLanes& lanes = LanesOf(peer);
      lanes.answer_due = lanes.answer_due || lanes.out.has_value();
      lanes.ask_due = lanes.ask_due || (lanes.in != nullptr && lanes.in->reader.has_value());
      OweLaneWords(peer);
    }
    if (peer->old_targets) OweTargets(peer);
    RepeatWindowWords(peer);
    RepeatControl(peer);
  }
}

// Repeats what may have been lost: an outstanding keepalive probe, or otherwise the report. The peer can
// receive the probe only now, so it gets a whole round for the answer, from the next check on.
void EndpointImpl::RepeatControl(Peer* peer) {
  const bool ask = peer->probe_outstanding;
  peer->probe_outstanding = false;
  if (ask && PostControl(peer, peer::Kind::kProbe, /*notify=*/false)) return;
  peer->report_requested_by_peer = true;
  QueueCreditReport(peer);
}

void EndpointImpl::Repost(PeerId id, uint32_t slot) {
  Peer* peer = Find(id);
  if (peer == nullptr || peer->state != peer::State::kUp) return;
  ++counters_.reposts;
  // The first message requests a report. A further request, for later messages, follows that report.
  const bool report_soon = MustAsk(peer);
  if (report_soon) (*slots_)[slot].signal = true;
  // As a SEND of one message, also after a WRITE into a lane: an error of the sender ends a lane.
  (*slots_)[slot].operation = queue::Operation::kSend;
  (*slots_)[slot].messages = 1;
  peer::Prefix before;
  std::memcpy(&before, (*slots_)[slot].data, sizeof(before));
  WritePrefix(peer, slot, peer::Kind::kData, report_soon, before.number);
  queue_->Post(&peer->target, slot);
}

void EndpointImpl::OnAskTime(base::Timer*, void* context) {
  static_cast<EndpointImpl*>(context)->AskBlocked();
}

// Sends one probe to each blocked peer. A peer that does not read is not probed twice.
void EndpointImpl::AskBlocked() {
  if (closed_ || blocked_.empty()) return;
  for (size_t i = 0; i < std::min(blocked_.size(), kMaxAsks); ++i) {
    Peer* peer = blocked_[i];
    if (peer->state != peer::State::kUp || peer->send.available() != 0) continue;
    if (peer->send.window(peer->remote_window) == 0) {
      AskForWindowAgain(peer);
      continue;
    }
    if (peer->report_requested) continue;
    // The next round asks again. Other peers may take a control slot although this peer may not.
    if (!PostControl(peer, peer::Kind::kProbe, /*notify=*/false)) continue;
    peer->report_requested = 1;
    ++counters_.probes;
  }
  timers_.Schedule(&ask_timer_, clock_.NowNs() + kAskNs);
}

void EndpointImpl::OnWatchTime(base::Timer*, void* context) {
  auto* self = static_cast<EndpointImpl*>(context);
  const int64_t now_ns = self->clock_.NowNs();
  const bool again = self->queue_->Watch(now_ns);
  self->TellSlowRetries();
  if (again) {
    self->timers_.Schedule(&self->watch_timer_, now_ns + self->queue_->WatchPeriodNs());
  }
}

void EndpointImpl::TellSlowRetries() {
  if (slow_retries_told_ || !queue_->slow_retries()) return;
  slow_retries_told_ = true;
  constexpr int64_t kMs = 1'000'000;
  const int64_t took_ms = queue_->counters().longest_attempt_ns / kMs;
  log_.Say(base::Severity::kWarning, "slow retries", "",
           "an unanswered request failed after " + std::to_string(took_ms) + " ms or more, where " +
               std::to_string(queue_->WatchPeriodNs() / kMs) +
               " ms were asked for: the device has a minimum timeout or retries of its own. "
               "dead_peer_timeout can't be met; the least that can be is about " +
               std::to_string(queue::DciPool::kMaxFailures * took_ms) + " ms");
}

// Sends a report to the peer. A repeated report is harmless.
void EndpointImpl::OnUnanswered(queue::Target* target) {
  if (IsForLarge(*target)) return;  // READs always request completions
  Peer* peer = &peers_[target->cookie];
  if (peer->state != peer::State::kUp) return;  // other states have their own deadlines
  peer->report_requested_by_peer = true;
  QueueCreditReport(peer);
}

void EndpointImpl::StartWatch() {
  if (watch_timer_.armed() || !queue_->completions_due()) return;
  timers_.Schedule(&watch_timer_, clock_.NowNs() + queue_->WatchPeriodNs());
}

}  // namespace sluice::endpoint
