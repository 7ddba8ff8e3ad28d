// SPDX-License-Identifier: Apache-2.0
//
// State of a peer's connection, and counters of the endpoint, for people and tools.
#include <cstring>
#include <string>

#include "transport/base/error.h"
#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {

absl::StatusOr<PeerReport> EndpointImpl::Report(PeerId id) const {
  const Peer* peer = Find(id);
  if (peer == nullptr) {
    return base::Error(absl::StatusCode::kUnavailable, "no such peer",
                       {.layer = "endpoint", .operation = "report"});
  }
  const auto plain = [](const ibv_ece& ece) { return Ece{ece.vendor_id, ece.options}; };
  PeerReport report;
  report.address = peer->address();
  report.inbound = peer->inbound;
  report.up = peer->state == peer::State::kUp;
  report.blocked = peer->blocked;
  report.probe_outstanding = peer->probe_outstanding;
  report.has_lane = peer->lanes != 0;
  report.credits = peer->send.available();
  report.credit_window = peer->remote_window;
  if (peer->has_connection) report.qp_number = connections_->QpNumber(peer->connection);
  report.quarantined_numbers = static_cast<uint32_t>(connections_->quarantined());
  report.own_epoch = epoch_;
  report.peer_epoch = peer->epoch;
  report.authenticated = peer->authenticated;
  report.tenant = receptions_[peer->tenant].tenant;
  report.max_message_bytes = peer->max_message_bytes;
  report.mtu_bytes = peer->mtu == 0 ? 0 : 128u << peer->mtu;
  report.reads_in_flight = peer->reads;
  report.service_level = peer->service_level;
  report.offered = plain(device_.ece());
  report.received = offers_.At(peer->offer);
  if (peer->profile != nullptr) {
    report.accepted = plain(peer->profile->accepted);
    report.template_qp_number = peer->profile->template_qpn;
    report.why_default = peer->profile->why_default;
  }
  report.receiving = plain(receptions_[peer->tenant].data->ece());
  if (rc_ != nullptr) {
    report.why_default = report.why_unmapped = "an RC queue pair needs none";
    return report;
  }
  report.mapped = peer->mapped;
  report.first_on_handle = peer->first_on_handle;
  if (peer->map_failed) {
    // The errno is not stored for each peer: a byte for each idle peer is too much.
    const int error_number = handles_->counts().last_map_error;
    const char* name = strerrorname_np(error_number);
    report.why_unmapped = std::string("mlx5dv_map_ah_to_qp failed, the last time with ") +
                          (name != nullptr ? name : std::to_string(error_number));
  } else if (!peer->mapped && peer->target.ah != nullptr) {
    report.why_unmapped = "this device maps no address handles, or not those without a GID";
  }
  return report;
}

ConnectionCounts EndpointImpl::Connections() const {
  const cm::Metrics cm = connections_->metrics();
  const path::HandleCounts handles = handles_->counts();
  return {.numbers_live = static_cast<uint32_t>(cm.live),
          .numbers_quarantined = static_cast<uint32_t>(cm.quarantined),
          .numbers_exhausted = cm.exhausted,
          .stale_rejects = cm.stale_rejects,
          .retries = cm.retries,
          .throttled = cm.throttled,
          .handles_in_use = handles.in_use,
          .handles_idle = handles.idle,
          .handles_made = handles.made,
          .handles_reused = handles.reused,
          .handles_evicted = handles.evicted,
          .handle_failures = handles.make_failures,
          .map_failures = handles.map_failures};
}

Counters EndpointImpl::Counts() const {
  Counters counters = counters_;
  counters.lanes = static_cast<uint32_t>(lanes_.size() - free_lanes_.size());
  counters.lanes_watched = static_cast<uint32_t>(watch_.size());
  counters.lane_bytes = lane_bytes_;
  for (const Reception& reception : receptions_) {
    counters.windows_waiting += reception.waiting;
  }
  const queue::PoolCounters& queues = queue_->counters();
  counters.requests_failed = queues.failed;
  counters.requests_flushed = queues.flushed;
  counters.late_completions = queues.late;
  counters.stream_resets = queues.stream_resets;
  counters.queue_recoveries = queues.dci_recoveries;
  return counters;
}

std::vector<QueueReport> EndpointImpl::Queues() const {
  std::vector<QueueReport> reports;
  if (rc_ != nullptr) {
    for (const queue::RcQueues::Report& queue : rc_->Reports()) {
      reports.push_back({.qp_number = queue.qp_number, .state = "ready", .posted = queue.posted});
    }
    return reports;
  }
  for (uint32_t i = 0; i < dcis_->dci_count(); ++i) {
    const queue::Dci& dci = dcis_->dci(i);
    QueueReport report;
    report.qp_number = dci.qp.number();
    report.state = std::string(queue::Name(dci.state));
    report.probation = dci.probation;
    report.posted = dci.tail - dci.head;
    report.streams = static_cast<uint32_t>(dci.streams.size());
    for (const queue::Stream& stream : dci.streams) {
      using queue::StreamState;
      report.streams_busy +=
          stream.state == StreamState::kBound || stream.state == StreamState::kLeft;
      report.streams_errored +=
          stream.state == StreamState::kErrored || stream.state == StreamState::kResetting;
      report.streams_resetting += stream.state == StreamState::kResetting;
    }
    report.drains = dci.drains;
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace sluice::endpoint
