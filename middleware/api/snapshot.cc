// SPDX-License-Identifier: Apache-2.0
//
// How servers and channels tell what they have counted.
#include "middleware/api/snapshot.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "middleware/api/channel.h"
#include "middleware/api/lease.h"
#include "middleware/api/server.h"
#include "middleware/api/server_poller.h"
#include "middleware/api/stack.h"

namespace sluice {
namespace {

constexpr size_t kMaxCallsUnderWay = 32;  // that are told of
constexpr absl::Duration kPatienceOfPollers = absl::Milliseconds(20);

}  // namespace

// On the polling thread, or when there is none.
void ServerPoller::Look(size_t details, ServerSnapshot* snapshot) const {
  snapshot->calls = engine_.counters();
  snapshot->sessions = engine_.session_counters();
  snapshot->transport = endpoint_->Counts();
  snapshot->handshakes = endpoint_->Handshakes();
  snapshot->connections = endpoint_->Connections();
  if (details == 0) return;

  snapshot->peers.clear();
  snapshot->tenants.clear();
  engine_.VisitPeers([&](const call::ServerEngine::PeerView& view) {
    const bool has_tenant = !view.tenant.empty();
    if (has_tenant && CountPeer(view.tenant, 1, &snapshot->tenants) > details) return true;
    PeerSnapshot peer;
    peer.address = view.address;
    peer.tenant = view.tenant;
    if (const auto report = endpoint_->Report(view.id); report.ok()) {
      peer.authenticated = report->authenticated;
      peer.own_congestion_control = report->mapped;
      peer.max_message_bytes = report->max_message_bytes;
    }
    peer.calls_under_way = view.calls_under_way;
    peer.waiting_replies = view.waiting_replies;
    peer.waiting_bytes = view.waiting_bytes;
    snapshot->peers.push_back(std::move(peer));
    return has_tenant || snapshot->peers.size() < details;
  });
  snapshot->peers_in_all = snapshot->calls.peers_up - snapshot->calls.peers_down;
  snapshot->queues = endpoint_->Queues();
  const auto& slow = engine_.slow_calls();
  snapshot->slow_calls.assign(slow.kept().begin(), slow.kept().end());
  snapshot->slow_calls_in_all = slow.seen();

  const int64_t now_ns = stack_->clock()->NowNs();
  snapshot->calls_under_way.clear();
  engine_.VisitCalls([&](const call::Incoming& call) {
    snapshot->calls_under_way.push_back(
        {call.method->full_name, *call.peer, absl::Nanoseconds(now_ns - call.received_ns),
         call.deadline_ns == call::kNoDeadlineNs ? absl::InfiniteDuration()
                                                 : absl::Nanoseconds(call.deadline_ns - now_ns),
         *call.tenant});
    return true;
  });
  std::sort(snapshot->calls_under_way.begin(), snapshot->calls_under_way.end(),
            [](const CallUnderWay& a, const CallUnderWay& b) { return a.age > b.age; });
  if (snapshot->calls_under_way.size() > kMaxCallsUnderWay) {
    snapshot->calls_under_way.resize(kMaxCallsUnderWay);
  }
}

void ServerPoller::OnAsked(base::MailNode* node) {
  ServerPoller* const self = static_cast<Asking*>(node)->poller;
  std::lock_guard lock(self->mutex_);
  self->Look(self->details_, &self->published_);
  self->asked_ = false;
  self->details_ = 0;
  ++self->answers_;
  self->answered_.notify_all();
}

ServerSnapshot ServerPoller::Published() const {
  std::lock_guard lock(mutex_);
  return published_;
}

ServerSnapshot ServerPoller::Ask(size_t details, absl::Duration patience) const {
  ServerSnapshot snapshot;
  if (PolledHere()) {  // a handler that runs inline, or the user's loop
    Look(details, &snapshot);
    snapshot.fresh = true;
    return snapshot;
  }
  std::unique_lock lock(mutex_);
  const uint64_t seen = answers_;
  const bool polling = started_ && !ended_;
  if (polling) {
    details_ = std::max(details_, details);
    if (!std::exchange(asked_, true)) engine_.Post(&asking_);
    answered_.wait_for(lock, absl::ToChronoNanoseconds(patience),
                       [&] { return answers_ != seen || ended_; });
  }
  snapshot = published_;
  snapshot.fresh = !polling || answers_ != seen || ended_;
  return snapshot;
}

ServerSnapshot Server::Published() const {
  ServerSnapshot all;
  for (const auto& poller : pollers_) Merge(poller->Published(), 0, &all);
  return all;
}

ServerSnapshot Server::Snapshot(size_t details, absl::Duration patience) const {
  const bool in_handler =
      std::any_of(pollers_.begin(), pollers_.end(), [](const auto& p) { return p->PolledHere(); });
  // Whoever polls keeps its peers waiting meanwhile; two that ask each other wait in vain.
  if (in_handler && pollers_.size() > 1) patience = std::min(patience, kPatienceOfPollers);
  ServerSnapshot all;
  all.fresh = true;
  for (const auto& poller : pollers_) {
    ServerSnapshot one = poller->Ask(details, patience);
    one.methods = poller->engine().stats().Snapshot();
    Merge(one, details, &all);
    all.fresh = all.fresh && one.fresh;
  }
  return all;
}

std::vector<base::TraceRecord> Server::Trace() const {
  std::vector<base::TraceRecord> all;
  for (const auto& poller : pollers_) {
    const std::vector<base::TraceRecord> one = poller->engine().trace().Copy();
    all.insert(all.end(), one.begin(), one.end());
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
  return all;
}

ChannelSnapshot Channel::TakeSnapshot() {
  ChannelSnapshot snapshot;
  lease_->Run([&] {
    snapshot.state = engine_.state();
    snapshot.outstanding = engine_.outstanding();
    snapshot.calls = engine_.counters();
    snapshot.sessions = engine_.session_counters();
    snapshot.transport = endpoint_->Counts();
    snapshot.connections = endpoint_->Connections();
  });
  snapshot.methods = engine_.stats().Snapshot();
  return snapshot;
}

}  // namespace sluice
