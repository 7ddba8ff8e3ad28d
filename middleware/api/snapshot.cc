// SPDX-License-Identifier: Apache-2.0
//
// Snapshots of servers and channels.
#include "middleware/api/snapshot.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "middleware/api/channel.h"
#include "middleware/api/channel_engine.h"
#include "middleware/api/lease.h"
#include "middleware/api/server.h"
#include "middleware/api/server_poller.h"
#include "middleware/api/stack.h"

namespace sluice {
namespace {

constexpr size_t kMaxCallsUnderWay = 32;   // maximum number of listed calls of a tenant
constexpr size_t kMaxPeersOfALook = 2048;  // listed peers of all tenants together
constexpr size_t kFewPeers = 32;  // listed peers of each tenant even if there are many tenants
constexpr absl::Duration kPatienceOfPollers = absl::Milliseconds(20);

bool IsShown(std::string_view tenant, std::optional<std::string_view> only_tenant) {
  return !only_tenant.has_value() || tenant == *only_tenant;
}

}  // namespace

// Call on the polling thread, or when no polling thread runs.
void ServerPoller::Look(size_t details, std::optional<std::string_view> only_tenant,
                        ServerSnapshot* snapshot) const {
  snapshot->calls = engine_.counters();
  snapshot->sessions = engine_.session_counters();
  snapshot->transport = endpoint_->Counts();
  snapshot->handshakes = endpoint_->Handshakes();
  snapshot->connections = endpoint_->Connections();
  if (details == 0) return;

  LookAtPeers(details, only_tenant, snapshot);
  snapshot->queues = endpoint_->Queues();
  snapshot->slow_calls = engine_.slow_calls().kept();
  snapshot->slow_calls_in_all = engine_.slow_calls().seen();
  LookAtCalls(only_tenant, snapshot);
}

// Lists at most `details` peers of each tenant. The listed tenants share kMaxPeersOfALook, but each may have at least kFewPeers.
void ServerPoller::LookAtPeers(size_t details, std::optional<std::string_view> only_tenant,
                               ServerSnapshot* snapshot) const {
  using View = call::ServerEngine::PeerView;
  absl::flat_hash_map<std::string_view, uint64_t> up, shown;
  engine_.VisitPeers([&](const View& view) {
    if (IsShown(view.tenant, only_tenant)) ++up[view.tenant];
    return true;
  });
  size_t left = 0;  // peers still to list
  const size_t most =
      up.empty() ? 0 : std::min(details, std::max(kMaxPeersOfALook / up.size(), kFewPeers));
  snapshot->tenants.clear();
  for (const auto& [tenant, peers] : up) {
    if (!tenant.empty()) snapshot->tenants.push_back({std::string(tenant), peers});
    left += std::min<size_t>(peers, most);
  }
  std::sort(snapshot->tenants.begin(), snapshot->tenants.end(),
            [](const auto& a, const auto& b) { return a.tenant < b.tenant; });
  snapshot->peers_in_all = snapshot->calls.peers_up - snapshot->calls.peers_down;
  snapshot->peers.clear();
  if (left == 0) return;
  engine_.VisitPeers([&](const View& view) {
    if (!IsShown(view.tenant, only_tenant) || ++shown[view.tenant] > most) return true;
    PeerSnapshot peer;
    peer.address = view.address;
    peer.tenant = view.tenant;
    if (const auto report = endpoint_->Report(view.id); report.ok()) {
      if (report->blocked) peer.state = "blocked";
      if (report->probe_outstanding) peer.state = "probed";
      peer.credits = report->credits;
      peer.credit_window = report->credit_window;
      peer.has_lane = report->has_lane;
      peer.authenticated = report->authenticated;
      peer.own_congestion_control = report->mapped;
      peer.max_message_bytes = report->max_message_bytes;
    }
    peer.calls_under_way = view.calls_under_way;
    peer.waiting_replies = view.waiting_replies;
    peer.waiting_bytes = view.waiting_bytes;
    snapshot->peers.push_back(std::move(peer));
    return --left != 0;
  });
}

// Lists the oldest calls of each tenant, so that a tenant with many calls does not hide the calls of other tenants.
void ServerPoller::LookAtCalls(std::optional<std::string_view> only_tenant,
                               ServerSnapshot* snapshot) const {
  std::vector<const call::Incoming*> calls;
  engine_.VisitCalls([&](const call::Incoming& call) {
    if (IsShown(*call.tenant, only_tenant)) calls.push_back(&call);
    return true;
  });
  std::stable_sort(calls.begin(), calls.end(),
                   [](const auto* a, const auto* b) { return a->received_ns < b->received_ns; });
  const int64_t now_ns = stack_->clock()->NowNs();
  absl::flat_hash_map<std::string_view, size_t> shown;
  snapshot->calls_under_way.clear();
  for (const call::Incoming* call : calls) {
    if (++shown[*call->tenant] > kMaxCallsUnderWay) continue;
    snapshot->calls_under_way.push_back(
        {call->method->full_name, *call->peer, absl::Nanoseconds(now_ns - call->received_ns),
         call->deadline_ns == call::kNoDeadlineNs ? absl::InfiniteDuration()
                                                  : absl::Nanoseconds(call->deadline_ns - now_ns),
         *call->tenant});
  }
}

void ServerPoller::OnSnapshotRequest(base::MailNode* node) {
  ServerPoller* const self = static_cast<SnapshotRequest*>(node)->poller;
  std::lock_guard lock(self->mutex_);
  self->Look(self->details_, std::nullopt, &self->published_);
  self->snapshot_requested_ = false;
  self->details_ = 0;
  ++self->answers_;
  self->answered_.notify_all();
}

ServerSnapshot ServerPoller::Published() const {
  std::lock_guard lock(mutex_);
  return published_;
}

ServerSnapshot ServerPoller::Ask(size_t details, absl::Duration patience,
                                 std::optional<std::string_view> only_tenant) const {
  ServerSnapshot snapshot;
  if (PolledHere()) {  // a handler that runs inline, or the user's loop
    Look(details, only_tenant, &snapshot);
    snapshot.fresh = true;
    return snapshot;
  }
  std::unique_lock lock(mutex_);
  const uint64_t seen = answers_;
  const bool polling = started() && !ended_;
  if (polling) {
    details_ = std::max(details_, details);
    if (!std::exchange(snapshot_requested_, true)) engine_.Post(&snapshot_request_);
    answered_.wait_for(lock, absl::ToChronoNanoseconds(patience),
                       [&] { return answers_ != seen || ended_; });
  }
  snapshot = published_;
  snapshot.fresh = !polling || answers_ != seen || ended_;
  return snapshot;
}

ServerSnapshot Server::Published() const {
  ServerSnapshot all;
  if (creator_.InForkedChild()) return all;
  for (const auto& poller : pollers_) Merge(poller->Published(), 0, &all);
  return all;
}

ServerSnapshot Server::Snapshot(size_t details, absl::Duration patience,
                                std::optional<std::string_view> only_tenant) const {
  if (creator_.InForkedChild()) return {};
  const bool in_handler =
      std::any_of(pollers_.begin(), pollers_.end(), [](const auto& p) { return p->PolledHere(); });
  // A polling thread does not serve its peers while it waits here. If two polling threads wait for each other, neither gets an answer.
  if (in_handler && pollers_.size() > 1) patience = std::min(patience, kPatienceOfPollers);
  ServerSnapshot all;
  all.fresh = true;
  for (const auto& poller : pollers_) {
    ServerSnapshot one = poller->Ask(details, patience, only_tenant);
    if (only_tenant.has_value()) KeepTenant(*only_tenant, &one);
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

ChannelSnapshot Channel::TakeSnapshot(absl::Duration patience) {
  ChannelSnapshot snapshot;
  const auto look = [&] {
    snapshot.state = engine_.state();
    snapshot.outstanding = engine_.outstanding();
    snapshot.calls = engine_.counters();
    snapshot.sessions = engine_.session_counters();
    snapshot.transport = core_->endpoint->Counts();
    snapshot.connections = core_->endpoint->Connections();
  };
  const int64_t patience_ns = patience == absl::InfiniteDuration()
                                  ? Lease::kForeverNs
                                  : std::max<int64_t>(absl::ToInt64Nanoseconds(patience), 0);
  snapshot.fresh = lease_->Run(&seat_, look, patience_ns);
  snapshot.methods = engine_.stats().Snapshot();
  return snapshot;
}

}  // namespace sluice
