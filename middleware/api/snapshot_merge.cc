// SPDX-License-Identifier: Apache-2.0
//
// Merges the counters of several pollers. The asserted sizes detect a new member that is not merged here.
#include <algorithm>
#include <cstdint>

#include "middleware/api/snapshot.h"

namespace sluice {
namespace {

template <typename T, typename... Members>
void Sum(const T& from, T* into, Members T::*... members) {
  ((into->*members += from.*members), ...);
}

void Add(const call::ServerCounters& from, call::ServerCounters* into) {
  using C = call::ServerCounters;
  static_assert(sizeof(C) == 16 * sizeof(uint64_t));
  Sum(from, into, &C::requests, &C::replies_ok, &C::replies_error, &C::replies_lost,
      &C::replies_waited, &C::unknown_methods, &C::refused, &C::refused_draining,
      &C::refused_at_gate, &C::cancelled, &C::calls_under_way, &C::protocol_errors, &C::overflows,
      &C::peers_up, &C::peers_down, &C::rests_asked);
}

void Add(const session::SessionCounters& from, session::SessionCounters* into) {
  using C = session::SessionCounters;
  static_assert(sizeof(C) == 9 * sizeof(uint64_t));
  Sum(from, into, &C::duplicates, &C::sent_again, &C::protocol_errors, &C::large_sent,
      &C::large_received, &C::large_lost, &C::large_in_place, &C::large_held, &C::lent);
}

void Add(const endpoint::Counters& from, endpoint::Counters* into) {
  using C = endpoint::Counters;
  static_assert(sizeof(C) == 39 * sizeof(uint64_t));  // two 32-bit counters share one word
  Sum(from, into, &C::messages_sent, &C::messages_received, &C::credit_messages,
      &C::control_received, &C::dropped_unknown, &C::dropped_malformed, &C::dropped_unproven,
      &C::receive_errors, &C::probes, &C::resends, &C::control_repeats, &C::reposts, &C::lanes,
      &C::lanes_watched, &C::lane_bytes, &C::lanes_granted, &C::lanes_lost, &C::lanes_closed,
      &C::lanes_refused, &C::lane_received, &C::lane_announced, &C::lane_hushes, &C::lane_wakes,
      &C::lane_held, &C::lane_sent, &C::requests_failed, &C::fetches, &C::fetches_failed,
      &C::fetched_bytes, &C::requests_flushed, &C::late_completions, &C::stream_resets,
      &C::queue_recoveries, &C::silent_peers, &C::over_credit, &C::targets_renewed,
      &C::windows_waiting, &C::windows_granted, &C::windows_recalled, &C::windows_asked);
}

void Add(const endpoint::HandshakeCounts& from, endpoint::HandshakeCounts* into) {
  using C = endpoint::HandshakeCounts;
  static_assert(sizeof(C) == 10 * sizeof(uint64_t));
  Sum(from, into, &C::completed, &C::garbage, &C::unauthenticated, &C::unfinished, &C::too_often,
      &C::asked_again, &C::full, &C::without_dc, &C::no_secrets, &C::under_way);
}

void Add(const endpoint::ConnectionCounts& from, endpoint::ConnectionCounts* into) {
  using C = endpoint::ConnectionCounts;
  static_assert(sizeof(C) == 11 * sizeof(uint64_t));  // four 32-bit counters share two words
  Sum(from, into, &C::numbers_live, &C::numbers_quarantined, &C::numbers_exhausted,
      &C::stale_rejects, &C::retries, &C::throttled, &C::handles_in_use, &C::handles_idle,
      &C::handles_made, &C::handles_reused, &C::handles_evicted, &C::handle_failures,
      &C::map_failures);
}

void Add(const observe::MethodSnapshot& from, std::vector<observe::MethodSnapshot>* into) {
  using M = observe::MethodSnapshot;
  const auto same = std::find_if(into->begin(), into->end(),
                                 [&](const M& method) { return method.method == from.method; });
  if (same == into->end()) {
    into->push_back(from);
    return;
  }
  Sum(from, &*same, &M::started, &M::request_bytes, &M::reply_bytes, &M::stream_messages_sent,
      &M::stream_messages_received);
  for (int code = 0; code < observe::kStatusCodes; ++code) same->ended[code] += from.ended[code];
  same->latency_ns.Merge(from.latency_ns);
}

template <typename T>
void Append(const std::vector<T>& from, std::vector<T>* into) {
  into->insert(into->end(), from.begin(), from.end());
}

}  // namespace

uint64_t CountPeer(const std::string& tenant, uint64_t peers,
                   std::vector<TenantSnapshot>* tenants) {
  for (TenantSnapshot& one : *tenants) {
    if (one.tenant == tenant) return one.peers += peers;
  }
  tenants->push_back({tenant, peers});
  return peers;
}

void KeepTenant(std::string_view tenant, ServerSnapshot* snapshot) {
  const auto of_another = [tenant](const auto& one) { return one.tenant != tenant; };
  std::erase_if(snapshot->peers, of_another);
  std::erase_if(snapshot->slow_calls, of_another);
  std::erase_if(snapshot->calls_under_way, of_another);
  std::erase_if(snapshot->tenants, of_another);
  snapshot->peers_in_all = snapshot->tenants.empty() ? 0 : snapshot->tenants[0].peers;
  snapshot->slow_calls_in_all = snapshot->slow_calls.size();
}

void Merge(const ServerSnapshot& from, size_t details, ServerSnapshot* into) {
  for (const observe::MethodSnapshot& method : from.methods) Add(method, &into->methods);
  into->pollers.push_back(
      {from.fresh, from.calls.requests, from.calls.peers_up - from.calls.peers_down});
  Add(from.calls, &into->calls);
  Add(from.sessions, &into->sessions);
  Add(from.transport, &into->transport);
  Add(from.handshakes, &into->handshakes);
  Add(from.connections, &into->connections);
  std::vector<TenantSnapshot> kept;  // number of listed peers of each tenant
  for (const PeerSnapshot& peer : into->peers) CountPeer(peer.tenant, 1, &kept);
  for (const PeerSnapshot& peer : from.peers) {
    if (CountPeer(peer.tenant, 1, &kept) <= details) into->peers.push_back(peer);
  }
  into->peers_in_all += from.peers_in_all;
  for (const TenantSnapshot& one : from.tenants) CountPeer(one.tenant, one.peers, &into->tenants);
  Append(from.queues, &into->queues);
  Append(from.slow_calls, &into->slow_calls);
  std::stable_sort(into->slow_calls.begin(), into->slow_calls.end(),
                   [](const auto& a, const auto& b) { return a.received_ns < b.received_ns; });
  into->slow_calls_in_all += from.slow_calls_in_all;
  Append(from.calls_under_way, &into->calls_under_way);
  std::stable_sort(into->calls_under_way.begin(), into->calls_under_way.end(),
                   [](const auto& a, const auto& b) { return a.age > b.age; });
}

}  // namespace sluice
